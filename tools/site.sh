#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# All pages as a site with search, made by MkDocs (apt: mkdocs, mkdocs-material). It needs no network.
#
#   tools/site.sh serve [--port N] [--ref TAG ...]    shows the site on http://localhost:8000/
#   tools/site.sh build [--output DIR] [--ref TAG ...]
#   tools/site.sh check [--output DIR]                checks the links of the built site
set -euo pipefail
here=$(realpath "$(dirname "$0")")
python=${TRSHARD_SITE_PYTHON:-/usr/bin/python3} # Debian's mkdocs installs for this python
if ! "$python" -c 'import mkdocs, mkdocs.utils; assert "material" in mkdocs.utils.get_theme_names()' 2> /dev/null; then
  echo "site.sh: $python has no mkdocs with the theme material; install them with: apt-get install mkdocs mkdocs-material" >&2
  exit 77
fi
exec "$python" "$here/site/make_site.py" "$@"
