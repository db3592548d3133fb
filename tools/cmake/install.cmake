# SPDX-License-Identifier: BSD-3-Clause
# cmake --install: the program, the library with its header, tools, option files, batch scripts and documents, a manual page,
# completions, a module file and a pkg-config file. Nothing holds the prefix but the module file and
# the pkg-config file, which find it from where they lie: the tree may be moved.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/trshard)
set(documents ${CMAKE_BINARY_DIR}/documents)
install(TARGETS trshard)
if(TARGET libtrshard)
  install(TARGETS libtrshard LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(DIRECTORY tools/ DESTINATION ${share}/tools USE_SOURCE_PERMISSIONS
        FILES_MATCHING PATTERN "*.py" PATTERN "examples/*.c" PATTERN "cmake" EXCLUDE PATTERN "packaging" EXCLUDE PATTERN "record_*" EXCLUDE
        PATTERN "check_*" EXCLUDE PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY input DESTINATION ${share})
install(DIRECTORY jobs/ DESTINATION ${share}/jobs USE_SOURCE_PERMISSIONS PATTERN "quickstart.sh" EXCLUDE)
install(FILES README.md src/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The manual page and the completions are made from -help. Where the program cannot run (a login node
# that bans MPI programs), they are left out.
add_custom_command(OUTPUT ${documents}/made COMMAND ${TRSHARD_PYTHON} ${CMAKE_SOURCE_DIR}/tools/document_options.py $<TARGET_FILE:trshard>
                   --output-dir ${documents} COMMAND ${CMAKE_COMMAND} -E touch ${documents}/made
                   DEPENDS trshard ${CMAKE_SOURCE_DIR}/tools/document_options.py COMMENT "Making the manual page and completions")
add_custom_target(documents ALL DEPENDS ${documents}/made)
install(FILES ${documents}/trshard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES ${documents}/trshard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trshard OPTIONAL)
install(FILES ${documents}/_trshard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)

file(WRITE ${documents}/modulefile "#%Module1.0
# SPDX-License-Identifier: BSD-3-Clause
# trshard ${PROJECT_VERSION}. The prefix is found from where this file lies: <prefix>/${CMAKE_INSTALL_DATADIR}/modulefiles/trshard/${PROJECT_VERSION}
set prefix [file normalize [file join [file dirname $ModulesCurrentModulefile] .. .. .. ..]]
module-whatis \"trshard ${PROJECT_VERSION}: trains and shards recommendation models\"
conflict trshard
prepend-path PATH $prefix/${CMAKE_INSTALL_BINDIR}
prepend-path MANPATH $prefix/${CMAKE_INSTALL_MANDIR}
prepend-path LD_LIBRARY_PATH $prefix/${CMAKE_INSTALL_LIBDIR}
prepend-path PYTHONPATH $prefix/${share}/tools/python
prepend-path PKG_CONFIG_PATH $prefix/${CMAKE_INSTALL_DATADIR}/pkgconfig
prepend-path CMAKE_PREFIX_PATH $prefix
setenv TRSHARD_ROOT $prefix
")
install(FILES ${documents}/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/trshard RENAME ${PROJECT_VERSION})

file(WRITE ${documents}/trshard.pc "# SPDX-License-Identifier: BSD-3-Clause
prefix=\${pcfiledir}/../..
bindir=\${prefix}/${CMAKE_INSTALL_BINDIR}
datadir=\${prefix}/${share}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
pythondir=\${datadir}/tools/python

Name: trshard
Description: trains and shards recommendation models
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir} -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
Libs: -L\${libdir} -ltrshard
")
install(FILES ${documents}/trshard.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

# find_package(trshard) gives the target trshard::trshard, with MPI for C, or for C++ in a project
# without C. C++ takes C's part of mpi.h alone: the definitions leave out the bindings of Open MPI and
# MPICH for C++, which live in a library of their own.
file(WRITE ${documents}/trshardConfig.cmake "# SPDX-License-Identifier: BSD-3-Clause
include(CMakeFindDependencyMacro)
get_property(trshard_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
list(FIND trshard_languages C trshard_mpi)
if(trshard_mpi LESS 0)
  set(trshard_mpi CXX)
else()
  set(trshard_mpi C)
endif()
find_dependency(MPI COMPONENTS \${trshard_mpi})
get_filename_component(trshard_prefix \"\${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
if(NOT TARGET trshard::trshard)
  add_library(trshard::trshard SHARED IMPORTED)
  set_target_properties(trshard::trshard PROPERTIES IMPORTED_LOCATION \"\${trshard_prefix}/${CMAKE_INSTALL_LIBDIR}/libtrshard.so\"
                        INTERFACE_INCLUDE_DIRECTORIES \"\${trshard_prefix}/${CMAKE_INSTALL_INCLUDEDIR}\"
                        INTERFACE_COMPILE_DEFINITIONS \"OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX\"
                        INTERFACE_LINK_LIBRARIES MPI::MPI_\${trshard_mpi})
endif()
")
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${documents}/trshardConfigVersion.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion)
install(FILES ${documents}/trshardConfig.cmake ${documents}/trshardConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_DATADIR}/cmake/trshard)
