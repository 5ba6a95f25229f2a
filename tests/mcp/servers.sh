#!/usr/bin/env bash
# Installs the published MCP servers of npm that tests run, into a folder of their own; those in Python come with the extra `dev`.
# Usage: tests/mcp/servers.sh [FOLDER]. Without node or without a registry it says so, and the tests that need them skip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:-${TOOLWIRE_MCP_SERVERS:-build/mcp-servers}}
servers=(@modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-everything@2026.8.31)

if [ "$(cat "$folder/installed" 2> /dev/null)" = "${servers[*]}" ]; then
    exit 0
fi
if ! command -v npm > /dev/null; then
    echo "npm is not here: tests of MCP servers made with node skip"
    exit 0
fi
mkdir -p "$folder"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! timeout 60 npm install --prefix "$folder" --no-package-lock --no-audit --no-fund --ignore-scripts "${servers[@]}" > "$log" 2>&1; then
    tail -n 5 "$log"
    echo "MCP servers of npm are not installed: tests that need them skip"
    exit 0
fi
echo "${servers[*]}" > "$folder/installed"
