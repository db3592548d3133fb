# SPDX-License-Identifier: BSD-3-Clause
# cmake --install: the program, the library with its header, tools, option files, batch scripts and documents, a manual page,
# completions, a module file and a pkg-config file. Nothing holds the prefix but the module file and
# the pkg-config file, which find it from where they lie: the tree may be moved. No permissions come
# from the clone: files are 644, programs 755, folders 755 less the umask of the installation.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/trshard)
set(documents ${PROJECT_BINARY_DIR}/documents)
add_custom_target(trs_installed) # what cmake --install needs: tools/setup.sh builds no more
add_dependencies(trs_installed trshard)
install(TARGETS trshard)
if(TARGET libtrshard)
  add_dependencies(trs_installed libtrshard)
  install(TARGETS libtrshard LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# The tools that are called have a "#!" line; modules and the package of Python have none.
file(GLOB tools CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} tools/*.py)
list(FILTER tools EXCLUDE REGEX "/(record|check)_")
foreach(tool ${tools})
  file(READ ${tool} start LIMIT 2)
  if(start MATCHES "^#!")
    install(PROGRAMS ${tool} DESTINATION ${share}/tools)
  else()
    install(FILES ${tool} DESTINATION ${share}/tools)
  endif()
endforeach()
# The tools for users by name, on the PATH: scripts that find the tool from where they lie.
file(RELATIVE_PATH to_tools ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/trshard/tools)
foreach(pair convert=convert_table inspect=inspect_file statistics=dataset_statistics generate=generate_data exchange=exchange plot=plot_run
        plot-plan=plot_plan report=report compare=compare_runs sweep=sweep)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 tool)
  file(WRITE ${documents}/bin/trshard-${name} "#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
exec \"$(dirname \"$(readlink -f \"$0\")\")/${to_tools}/${tool}.py\" \"$@\"
")
  install(PROGRAMS ${documents}/bin/trshard-${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()
install(DIRECTORY tools/examples tools/python DESTINATION ${share}/tools PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY input DESTINATION ${share})
install(DIRECTORY jobs/ DESTINATION ${share}/jobs PATTERN "quickstart.sh" EXCLUDE)
# The pages keep their places to each other, so that their links hold.
foreach(page README.md tools/README.md src/README.md src/RULES.md src/api/trshard.h src/plan/README.md src/plan/RULES.md src/LICENSE
        gpu/README.md regression/README.md)
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${page} DESTINATION ${share}/${folder})
endforeach()
install(FILES src/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The manual page and the completions are made from -help. Where the program cannot run (a login node
# that bans MPI programs), or where there is no Python, they are left out.
execute_process(COMMAND ${TRSHARD_PYTHON} -c "import dataclasses" RESULT_VARIABLE without_python OUTPUT_QUIET ERROR_QUIET)
if(without_python)
  message(STATUS "No manual page and no completions are made: TRSHARD_PYTHON=${TRSHARD_PYTHON} is no Python 3.7 or newer")
else()
  set(maker ${PROJECT_SOURCE_DIR}/tools/document_options.py)
  add_custom_command(OUTPUT ${documents}/made COMMAND ${TRSHARD_PYTHON} ${maker} $<TARGET_FILE:trshard> --output-dir ${documents}
                     COMMAND ${CMAKE_COMMAND} -E touch ${documents}/made DEPENDS trshard ${maker} COMMENT "Making the manual page and completions")
  add_custom_target(documents ALL DEPENDS ${documents}/made)
  add_dependencies(trs_installed documents)
endif()
install(FILES ${documents}/trshard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES ${documents}/trshard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trshard OPTIONAL)
install(FILES ${documents}/_trshard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)

file(WRITE ${documents}/modulefile "#%Module1.0
# SPDX-License-Identifier: BSD-3-Clause
# trshard ${PROJECT_VERSION}. The prefix is found from where this file lies, and not a link to it: <prefix>/${CMAKE_INSTALL_DATADIR}/modulefiles/trshard/${PROJECT_VERSION}
set file [file dirname [file normalize [file join $ModulesCurrentModulefile follow]]]
set prefix [file normalize [file join [file dirname $file] .. .. ..]]
module-whatis \"trshard ${PROJECT_VERSION}: trains and shards recommendation models\"
conflict trshard
prepend-path PATH $prefix/${CMAKE_INSTALL_BINDIR}
prepend-path MANPATH $prefix/${CMAKE_INSTALL_MANDIR}
# An empty element stands for the system's own folders, which man would leave out.
append-path MANPATH \"\"
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
