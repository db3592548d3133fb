# SPDX-License-Identifier: BSD-3-Clause
# cmake -DSOURCE=DIR -DHEADER=FILE -P commit.cmake: write DIR's commit to the header, unless the header has it. Each build runs this, because a
# new commit does not run configure again.
cmake_minimum_required(VERSION 3.22)
set(commit unknown)
if(EXISTS ${SOURCE}/.git) # without one, a repository around an unpacked archive would answer
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(found)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "/* SPDX-License-Identifier: BSD-3-Clause */\n#define TRS_COMMIT \"@commit@\"\n" @ONLY)
