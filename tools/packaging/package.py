# SPDX-License-Identifier: BSD-3-Clause
"""trshard for Spack.

  mkdir -p my_repo/packages/trshard && cp tools/packaging/package.py my_repo/packages/trshard/
  printf 'repo:\\n  namespace: my_repo\\n' > my_repo/repo.yaml
  spack repo add my_repo
  spack dev-build trshard@main     in a clone of trshard

A site that has an archive of a release adds its url and checksum.
"""
from spack.package import *


class Trshard(CMakePackage):
    """Shards embedding tables over the ranks of an MPI job, and trains recommendation models on them."""

    homepage = "https://example.org/trshard"
    git = "https://example.org/trshard.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("cuda", default=False, description="CUDA and NCCL backends")
    variant("tools", default=True, description="Python tools: converters, plots, inspection of files")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi")
    depends_on("petsc@3.18: +mpi ~complex +double")
    depends_on("openblas threads=pthreads")
    depends_on("jansson")
    depends_on("libmicrohttpd")
    depends_on("xxhash")
    depends_on("libyaml")
    depends_on("hwloc@2:")
    depends_on("cuda@13:", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("cmocka", type="test")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-numpy", type="run", when="+tools")
    depends_on("py-h5py", type="run", when="+tools")
    depends_on("py-matplotlib", type="run", when="+tools")
    depends_on("py-tqdm", type="run", when="+tools")

    def cmake_args(self):
        return [
            self.define("TRSHARD_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("TRSHARD_PYTHON", self.spec["python"].command.path),
            self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc),
            self.define("BUILD_TESTING", self.run_tests),
        ]
