# SPDX-License-Identifier: BSD-3-Clause
# cmake --install installs the program, the library with its header, tools, option files, batch scripts, documents, a manual page,
# completions, a module file and a pkg-config file. Only the module file and the pkg-config file use the prefix. They derive it from
# their own place, so the tree may be moved. Permissions do not depend on the clone's: files have 644, programs 755, folders 755, less
# the umask of the installation.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/trshard)
set(documents ${PROJECT_BINARY_DIR}/documents)
add_custom_target(trs_installed) # the targets that cmake --install needs; tools/setup.sh builds only these
add_dependencies(trs_installed trshard)
install(TARGETS trshard)
if(TARGET trshard-serve)
  add_dependencies(trs_installed trshard-serve)
  install(TARGETS trshard-serve)
  install(FILES tools/packaging/trshard-serve.service DESTINATION lib/systemd/system)
endif()
if(TARGET libtrshard)
  add_dependencies(trs_installed libtrshard)
  install(TARGETS libtrshard LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# Tools that users call have a "#!" line. Modules and the Python package have none.
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
# The tools for users by name, on the PATH: scripts that find the tool relative to their own place.
file(RELATIVE_PATH to_tools ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/trshard/tools)
foreach(pair convert=convert_table inspect=inspect_file statistics=dataset_statistics generate=generate_data exchange=exchange predictions=predictions plot=plot_run
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
file(RELATIVE_PATH to_jobs ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/trshard/jobs)
file(WRITE ${documents}/bin/trshard-quickstart "#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
exec \"$(dirname \"$(readlink -f \"$0\")\")/${to_jobs}/quickstart.sh\" \"$@\"
")
install(PROGRAMS ${documents}/bin/trshard-quickstart DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY tools/examples tools/python DESTINATION ${share}/tools PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY input DESTINATION ${share})
install(PROGRAMS jobs/quickstart.sh DESTINATION ${share}/jobs)
install(DIRECTORY jobs/ DESTINATION ${share}/jobs PATTERN "quickstart.sh" EXCLUDE)
# The pages keep their relative places, so that their links work.
foreach(page README.md tools/README.md src/README.md src/RULES.md src/api/trshard.h src/plan/README.md src/plan/RULES.md src/LICENSE
        gpu/README.md regression/README.md)
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${page} DESTINATION ${share}/${folder})
endforeach()
install(FILES src/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The program's manual page and the completions are made from -help, and the manual pages of the library's functions from trshard.h.
# They are left out if there is no Python; the first three also if the program cannot run, as on a login node that bans MPI programs.
execute_process(COMMAND ${TRSHARD_PYTHON} -c "import dataclasses" RESULT_VARIABLE without_python OUTPUT_QUIET ERROR_QUIET)
if(without_python)
  message(STATUS "No manual page and no completions are made: TRSHARD_PYTHON=${TRSHARD_PYTHON} is no Python 3.7 or newer")
else()
  set(maker ${PROJECT_SOURCE_DIR}/tools/document_options.py)
  set(function_maker ${PROJECT_SOURCE_DIR}/tools/document_functions.py)
  set(header ${PROJECT_SOURCE_DIR}/src/api/trshard.h)
  add_custom_command(OUTPUT ${documents}/made COMMAND ${TRSHARD_PYTHON} ${maker} $<TARGET_FILE:trshard> --output-dir ${documents}
                     COMMAND ${TRSHARD_PYTHON} ${function_maker} ${header} --version ${PROJECT_VERSION} --output-dir ${documents}/man3
                     COMMAND ${CMAKE_COMMAND} -E touch ${documents}/made DEPENDS trshard ${maker} ${function_maker} ${header}
                     COMMENT "Making the manual pages and completions")
  add_custom_target(documents ALL DEPENDS ${documents}/made)
  add_dependencies(trs_installed documents)
endif()
install(FILES ${documents}/trshard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
file(MAKE_DIRECTORY ${documents}/man3) # an empty folder may be installed, a missing one may not
install(DIRECTORY ${documents}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR})
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
# An empty element adds the system's own folders, which man would leave out otherwise.
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

# find_package(trshard) gives the target trshard::trshard, with MPI for C. In a project without C it is MPI for C++. C++ uses only the
# C part of mpi.h: the definitions exclude the C++ bindings of Open MPI and MPICH, which are in a separate library.
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
