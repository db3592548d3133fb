# SPDX-License-Identifier: BSD-3-Clause
# The libraries that trshard needs, under the names of Debian, RHEL, Spack, EasyBuild and Cray. Each
# library becomes a target trs::<NAME>. Missing libraries are collected. trs_report_missing() lists
# them in one message, with the packages that contain them.
include(CheckCSourceCompiles)
find_package(PkgConfig QUIET)

# If PETSC_DIR (and PETSC_ARCH) is set, PETSc's pkg-config files are there.
foreach(folder "$ENV{PETSC_DIR}/$ENV{PETSC_ARCH}/lib/pkgconfig" "$ENV{PETSC_DIR}/lib/pkgconfig"
        "${PETSC_DIR}/${PETSC_ARCH}/lib/pkgconfig" "${PETSC_DIR}/lib/pkgconfig")
  if(EXISTS "${folder}" AND IS_ABSOLUTE "${folder}")
    set(ENV{PKG_CONFIG_PATH} "${folder}:$ENV{PKG_CONFIG_PATH}")
  endif()
endforeach()

set(TRS_MISSING "")
set(TRS_FOUND "")

# Note that a library is missing, and the packages that contain it: apt, dnf, Spack.
function(trs_note_missing what apt dnf spack)
  string(APPEND TRS_MISSING "\n  ${what}\n      apt: ${apt}   dnf: ${dnf}   spack: ${spack}")
  set(TRS_MISSING "${TRS_MISSING}" PARENT_SCOPE)
endfunction()

# trs_find(NAME PKG_CONFIG name... HEADER file LIBRARIES name... [FOLDERS suffix...] PACKAGES what apt dnf spack)
# makes the target trs::NAME. It tries each name with pkg-config. If pkg-config knows none, it searches
# for the header and the library in CMAKE_PREFIX_PATH, NAME_ROOT, NAME_DIR and the compiler's own
# folders (a Cray's compiler wrappers need neither).
function(trs_find name)
  cmake_parse_arguments(want "" "HEADER" "PKG_CONFIG;LIBRARIES;FOLDERS;PACKAGES" ${ARGN})
  set(target trs::${name})
  add_library(${target} INTERFACE IMPORTED)
  if(PKG_CONFIG_FOUND)
    pkg_search_module(TRS_${name} QUIET IMPORTED_TARGET ${want_PKG_CONFIG})
  endif()
  if(TRS_${name}_FOUND)
    target_link_libraries(${target} INTERFACE PkgConfig::TRS_${name})
    set(found "${TRS_${name}_MODULE_NAME} ${TRS_${name}_VERSION}")
    set(TRS_${name}_INCLUDES ${TRS_${name}_INCLUDE_DIRS} PARENT_SCOPE)
  else()
    set(hints ${${name}_ROOT} ${${name}_DIR} $ENV{${name}_ROOT} $ENV{${name}_DIR})
    find_path(TRS_${name}_HEADER ${want_HEADER} HINTS ${hints} PATH_SUFFIXES include ${want_FOLDERS})
    find_library(TRS_${name}_LIBRARY NAMES ${want_LIBRARIES} HINTS ${hints} PATH_SUFFIXES lib lib64)
    mark_as_advanced(TRS_${name}_HEADER TRS_${name}_LIBRARY)
    if(NOT TRS_${name}_HEADER OR NOT TRS_${name}_LIBRARY)
      trs_note_missing(${want_PACKAGES})
      set(TRS_MISSING "${TRS_MISSING}" PARENT_SCOPE)
      return()
    endif()
    target_include_directories(${target} SYSTEM INTERFACE ${TRS_${name}_HEADER})
    target_link_libraries(${target} INTERFACE ${TRS_${name}_LIBRARY})
    set(found "${TRS_${name}_LIBRARY}")
    set(TRS_${name}_INCLUDES ${TRS_${name}_HEADER} PARENT_SCOPE)
  endif()
  set(TRS_FOUND "${TRS_FOUND}\n  ${name}: ${found}" PARENT_SCOPE)
endfunction()

# Check if a program with these lines before main() and this statement links with the targets.
function(trs_links_with result lines statement)
  set(CMAKE_REQUIRED_LIBRARIES ${ARGN})
  set(CMAKE_REQUIRED_QUIET ON)
  check_c_source_compiles("${lines}\nint main(void) { ${statement}; return 0; }" ${result})
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

# One message for all missing libraries.
function(trs_report_missing)
  if(TRS_MISSING)
    message(FATAL_ERROR "trshard cannot be built here. What is missing, and the packages that bring it:${TRS_MISSING}\n"
            "On Debian, tools/setup.sh installs all of it. Libraries in folders of their own are found through "
            "PKG_CONFIG_PATH, CMAKE_PREFIX_PATH, PETSC_DIR or <NAME>_ROOT.")
  endif()
endfunction()

find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
  trs_links_with(TRS_MPI_IS_OPEN_MPI "#include <mpi.h>\n#ifndef OPEN_MPI\n#error other\n#endif" "MPI_Finalize()" MPI::MPI_C)
  trs_links_with(TRS_MPI_IS_MPICH "#include <mpi.h>\n#ifndef MPICH_VERSION\n#error other\n#endif" "MPI_Finalize()" MPI::MPI_C)
else()
  trs_note_missing("MPI: no C compiler wrapper or mpi.h" libopenmpi-dev openmpi-devel openmpi)
endif()
find_package(OpenMP QUIET COMPONENTS C)
if(NOT OpenMP_C_FOUND)
  trs_note_missing("OpenMP: the C compiler has no support for it" gcc gcc gcc)
endif()
find_package(Threads REQUIRED)

# The names of an HDF5 that is built with this MPI come first, because PETSc may contain that HDF5, too.
set(hdf5_names hdf5 hdf5-serial)
if(TRS_MPI_IS_OPEN_MPI)
  list(PREPEND hdf5_names hdf5-openmpi)
elseif(TRS_MPI_IS_MPICH)
  list(PREPEND hdf5_names hdf5-mpich)
endif()
trs_find(HDF5 PKG_CONFIG ${hdf5_names} HEADER hdf5.h LIBRARIES hdf5
         PACKAGES "HDF5 1.10 or newer" libhdf5-openmpi-dev hdf5-openmpi-devel hdf5)
target_compile_definitions(trs::HDF5 INTERFACE H5_USE_110_API) # newer versions have other types under the same names
trs_find(PETSC PKG_CONFIG PETSc petsc HEADER petscsys.h LIBRARIES petsc petsc_real
         PACKAGES "PETSc 3.18 or newer (PETSC_DIR, or its folder lib/pkgconfig in PKG_CONFIG_PATH)" petsc-dev petsc-openmpi-devel petsc)
trs_find(BLAS PKG_CONFIG openblas openblas-openmp openblas-pthread flexiblas blis mkl-dynamic-lp64-seq cblas HEADER cblas.h
         LIBRARIES openblas openblasp flexiblas sci_gnu sci_cray cblas FOLDERS openblas flexiblas
         PACKAGES "BLAS with cblas.h (OpenBLAS is the one that is tested)" libopenblas-pthread-dev openblas-devel openblas)
trs_find(JANSSON PKG_CONFIG jansson HEADER jansson.h LIBRARIES jansson PACKAGES jansson libjansson-dev jansson-devel jansson)
trs_find(XXHASH PKG_CONFIG libxxhash xxhash HEADER xxhash.h LIBRARIES xxhash PACKAGES xxHash libxxhash-dev xxhash-devel xxhash)
trs_find(YAML PKG_CONFIG yaml-0.1 HEADER yaml.h LIBRARIES yaml PACKAGES LibYAML libyaml-dev libyaml-devel libyaml)
trs_find(HWLOC PKG_CONFIG hwloc HEADER hwloc.h LIBRARIES hwloc PACKAGES hwloc libhwloc-dev hwloc-devel hwloc)
trs_report_missing()

# trshard-serve needs this library. Without it, everything else is built.
if(PKG_CONFIG_FOUND)
  pkg_search_module(TRS_MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd>=0.9.71)
endif()
if(TRS_MICROHTTPD_FOUND)
  string(APPEND TRS_FOUND "\n  MICROHTTPD: libmicrohttpd ${TRS_MICROHTTPD_VERSION}")
  set(TRS_SERVES ON)
else()
  string(APPEND TRS_FOUND "\n  MICROHTTPD: missing, so trshard-serve is not built (apt: libmicrohttpd-dev, dnf: libmicrohttpd-devel, spack: libmicrohttpd)")
  set(TRS_SERVES OFF)
endif()

# The libraries must work together. If they do not, the usual reason is a second MPI on the search path.
trs_links_with(TRS_PETSC_WORKS "#include <petscsys.h>" "PetscInitializeNoArguments()" trs::PETSC MPI::MPI_C)
trs_links_with(TRS_HDF5_WORKS "#include <hdf5.h>" "H5open()" trs::HDF5 MPI::MPI_C)
trs_links_with(TRS_BLAS_WORKS "#include <cblas.h>"
               "float x = 1; cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &x, 1, &x, 1, 0, &x, 1)" trs::BLAS)
foreach(pair "PETSC;petscsys.h" "HDF5;hdf5.h" "BLAS;cblas.h")
  list(GET pair 0 name)
  if(NOT TRS_${name}_WORKS)
    message(FATAL_ERROR "${name} was found, but a program of one line does not build with it and this MPI "
            "(${MPI_C_COMPILER}): is it built with another MPI? What was found:${TRS_FOUND}\n"
            "The compiler's words are in CMakeFiles/CMakeError.log or CMakeConfigureLog.yaml.")
  endif()
endforeach()
trs_links_with(TRS_PETSC_IS_NEW "#include <petscsys.h>\n#if PETSC_VERSION_LT(3, 18, 0)\n#error old\n#endif" "PetscInitializeNoArguments()"
               trs::PETSC MPI::MPI_C)
if(NOT TRS_PETSC_IS_NEW)
  message(FATAL_ERROR "PETSc 3.18 or newer is needed. What was found:${TRS_FOUND}\nA newer one, as Spack builds it, is found through PETSC_DIR or PKG_CONFIG_PATH.")
endif()
trs_links_with(TRS_PETSC_REAL_DOUBLE
               "#include <petscsys.h>\n#if defined(PETSC_USE_COMPLEX) || !defined(PETSC_USE_REAL_DOUBLE)\n#error other\n#endif" "" trs::PETSC MPI::MPI_C)
if(NOT TRS_PETSC_REAL_DOUBLE)
  message(FATAL_ERROR "PETSc is built for complex numbers or in single precision; trshard needs one with real numbers in double precision.")
endif()
trs_links_with(TRS_BLAS_IS_OPENBLAS "#include <cblas.h>\n" "openblas_set_num_threads(1); return openblas_get_config() == openblas_get_corename()" trs::BLAS)

# A build needs all libraries except this one, which only tests use.
if(PKG_CONFIG_FOUND)
  pkg_search_module(TRS_CMOCKA QUIET IMPORTED_TARGET cmocka)
endif()
