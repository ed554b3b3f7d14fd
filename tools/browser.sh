#!/bin/sh
# Installs Chromium with a font, unless a browser is there that the tests know. Needs apt-get and
# root, and does nothing without them; where it has both, a failure is a failure.
set -eu

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name"; then exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "No Chromium here, and no apt-get or not root: tests that need a browser will be skipped."
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  chromium fonts-dejavu-core >/dev/null
command -v chromium
