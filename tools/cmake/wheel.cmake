# SPDX-License-Identifier: BSD-3-Clause
# A wheel (tools/python/pyproject.toml) has only the library, in the package's folder. A wheel cannot hold links, so
# the library is one file with the name that programs load.
set_target_properties(libtrshard PROPERTIES VERSION 1 PUBLIC_HEADER "")
install(TARGETS libtrshard LIBRARY DESTINATION trshard COMPONENT python NAMELINK_SKIP)
