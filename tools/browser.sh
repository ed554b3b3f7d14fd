#!/bin/sh
# Installs Chromium with a font, unless a browser that the tests support is installed. Needs apt-get
# and root, and does nothing without them; with both, it fails if the installation fails.
set -eu

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name"; then exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Chromium is not installed, and apt-get or root is missing: browser tests will be skipped."
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  chromium fonts-dejavu-core >/dev/null
command -v chromium
