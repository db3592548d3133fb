#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints why tests were skipped, from ctest's --output-junit FILE: the last line that each of them printed."""
import re
import sys
import xml.etree.ElementTree

for test in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    if test.find("skipped") is not None:
        lines = (test.findtext("system-out") or "").strip().splitlines()
        reason = re.sub("^skipped: *", "", lines[-1], flags=re.IGNORECASE) if lines else "it gave no reason"
        print(f"{test.get('name')} skipped: {reason}")
