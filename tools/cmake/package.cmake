# SPDX-License-Identifier: BSD-3-Clause
# cpack -G DEB makes a package for the Debian or Ubuntu of this machine; cpack -G TGZ makes an archive. dpkg-shlibdeps finds the
# libraries' packages, so the tools dpkg-dev and file must be installed.
set(CPACK_PACKAGE_CONTACT "The trshard developers <trshard@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains recommendation models with sharded embedding tables")
set(CPACK_PACKAGE_DESCRIPTION "The program shards embedding tables over the ranks of an MPI job, plans the sharding, and trains, evaluates and\n\
 serves recommendation models. The package also has its library, its Python tools, option files and batch scripts.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/src/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # ldconfig runs after the installation
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(TRS_MPI_IS_MPICH)
  set(mpirun mpich)
else()
  set(mpirun openmpi-bin)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${mpirun}, python3, python3-numpy, python3-h5py")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-tqdm")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libdnnl2 | libdnnl3, python3-pip") # found at run time; pip downloads the quick start's data
include(CPack)
