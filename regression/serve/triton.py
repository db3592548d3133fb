#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA's tritonclient reads the server's metadata and gets the bits of -task predict, as JSON and in
binary form, one after the other and many at the same time. Skipped (77) without tritonclient: set
TRSHARD_TRITON_PYTHON to a Python that has tritonclient[http].

    triton.py TRSHARD TRSHARD-SERVE PYTHON
"""
import os
import subprocess
import sys
import tempfile

import numpy as np


def client(folder, port):
    """Run by the Python that has tritonclient."""
    import tritonclient.http as triton

    arrays = np.load(os.path.join(folder, "inputs.npz"))
    with triton.InferenceServerClient(f"127.0.0.1:{port}", concurrency=4) as served:
        assert served.is_server_live() and served.is_server_ready() and served.is_model_ready("model")
        assert served.get_server_metadata()["name"] == "trshard-serve"
        about = served.get_model_metadata("model")
        assert [i["name"] for i in about["inputs"]] == list(arrays["names"]), about
        types = {i["name"]: i["datatype"] for i in about["inputs"]}

        def make(samples, binary):
            inputs = []
            for name in arrays["names"]:
                array = arrays[f"{name}@{samples}"]
                inputs.append(triton.InferInput(name, list(array.shape), types[name]))
                inputs[-1].set_data_from_numpy(array, binary_data=binary)
            return inputs, [triton.InferRequestedOutput("click", binary_data=binary)]

        def check(result, samples):
            answer = result.get_response()
            assert answer["parameters"]["step"] == 20 and answer["model_version"] == "20", answer
            assert np.array(result.as_numpy("click"), np.float32).tobytes() == arrays[f"wanted@{samples}"].tobytes(), samples

        for binary in (True, False):
            for samples in ("all", "one"):
                inputs, outputs = make(samples, binary)
                check(served.infer("model", inputs, outputs=outputs, request_id="r"), samples)
        inputs, outputs = make("all", True)
        for waiting in [served.async_infer("model", inputs, outputs=outputs) for _ in range(50)]:
            check(waiting.get_result(), "all")
        try:
            served.infer("model", inputs[:2], outputs=outputs, model_version="19")
            raise SystemExit("version 19 was served")
        except triton.InferenceServerException as error:
            assert "version 20" in str(error), error


def main():
    python = sys.argv[3]
    if subprocess.run([python, "-c", "import tritonclient.http"], capture_output=True).returncode:
        print(f"SKIPPED: {python} has no tritonclient[http] (TRSHARD_TRITON_PYTHON)")
        sys.exit(77)
    import served

    with tempfile.TemporaryDirectory() as folder:
        served.write_data(folder)
        served.program(folder, f"-data_train data.h5 {served.SMALL} -checkpoint_final model.h5")
        arrays = {"names": [name for name, _ in served.tensors_of(np.arange(1))]}
        for samples, some, batch in (("all", np.arange(served.N), 256), ("one", np.arange(7, 8), 1)):
            arrays.update({f"{name}@{samples}": array for name, array in served.tensors_of(some)})
            arrays[f"wanted@{samples}"] = served.predicted(folder, "model.h5", batch)[some, 0]
        np.savez(os.path.join(folder, "inputs.npz"), **arrays)
        with served.serving(folder, "-model model.h5 -serve_batch 1") as (port, _):
            subprocess.run([python, __file__, "--client", folder, str(port)], check=True, timeout=served.PATIENCE_S)


if __name__ == "__main__":
    if sys.argv[1] == "--client":
        client(sys.argv[2], int(sys.argv[3]))
    else:
        main()
