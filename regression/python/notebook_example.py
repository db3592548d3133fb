# SPDX-License-Identifier: BSD-3-Clause
"""tools/examples/notebook.ipynb: it has no outputs, and each of its cells runs.

    notebook_example.py PYTHON      exit status 77: PYTHON has no nbclient, ipykernel, h5py or matplotlib
"""
import os
import sys

if len(sys.argv) > 1:
    if not os.access(sys.argv[1], os.X_OK):
        print(f"skipped: there is no {sys.argv[1]} (tools/setup.sh --tests makes it)")
        sys.exit(77)
    os.execv(sys.argv[1], [sys.argv[1], os.path.abspath(__file__)])
try:
    import h5py
    import ipykernel
    import matplotlib
    import nbclient
    import nbformat
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(77)

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "examples", "notebook.ipynb")
notebook = nbformat.read(PATH, as_version=4)
nbformat.validate(notebook)
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
assert len(cells) > 7 and all(not cell.outputs and cell.execution_count is None for cell in cells), "the notebook in the repository has outputs"
# this interpreter, whatever kernels the machine has
notebook.metadata.kernelspec.name = "python3"
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
shown = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in cells]
assert sum("image/png" in kinds for kinds in shown) == 2, shown
texts = ["".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs) for cell in cells]
assert any("Result(" in text and "auc" in text for text in texts), texts
predictions = next(text for text in texts if text.startswith("array(["))
numbers = [float(word) for word in predictions[len("array(["):].split("]")[0].split(",")]
assert min(numbers[0], numbers[2]) > 0.5 > max(numbers[1], numbers[3]), predictions  # even users click on item 0
own = next(text for text in texts if "'auc'" in text)
assert "EmbeddingBagCollection(2 tables, 16 columns" in own and float(own.split("'auc': ")[1].split(",")[0]) > 0.8, own
print("ok: the notebook runs")
