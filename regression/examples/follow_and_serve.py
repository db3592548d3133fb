# SPDX-License-Identifier: BSD-3-Clause
"""follow_and_serve.py BUILD - run the example of the same name with shorter minutes. All requests
are answered, by several models. The model that follows the data has the better AUC. The training is
killed twice."""
import os
import re
import subprocess
import sys
import tempfile

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "examples", "follow_and_serve.py")

with tempfile.TemporaryDirectory() as folder:
    picture = os.path.join(folder, "circle.png")
    words = ["--build", sys.argv[1], "--minutes", "6", "--seconds", "2", "--samples", "6000", "--output", picture]
    done = subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.returncode
    assert re.findall(r"^minute (\d+): the training is killed", done.stdout, re.MULTILINE) == ["2", "4"], "not two kills"
    answers, models, failed = map(int, re.search(r"^answers +(\d+) of (\d+) models, (\d+) failed", done.stdout, re.MULTILINE).groups())
    assert answers > 50 and models >= 10 and failed == 0, (answers, models, failed)
    assert int(re.search(r"^server +(\d+) deltas applied", done.stdout, re.MULTILINE)[1]) >= 10, "few deltas"
    following, once = map(float, re.search(r"^AUC +([0-9.]+) with following, ([0-9.]+) with", done.stdout, re.MULTILINE).groups())
    assert following > once + 0.02, (following, once)
    with open(picture, "rb") as file:
        assert file.read(4) == b"\x89PNG"
