#!/usr/bin/env bash
# The parser suite with the compiled scanner built under AddressSanitizer and UndefinedBehaviorSanitizer. Needs gcc or clang
# with libasan. PYTHON names the interpreter; what follows goes to pytest (default: tests/parse and the fuzz targets).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$(command -v "${PYTHON:-python}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")  # not resolved: a link is what makes a virtual environment
built=${ASAN_BUILD:-build/asan}
mkdir -p "$built"
# A copy of the packages, so that the sanitized modules never get into the checkout.
rm -rf "$built/proxy" "$built/tests" "$built/middlewares"
cp -r proxy middlewares tests setup.py pyproject.toml README.md LICENSE "$built/"
find "$built/proxy" -name "*.so" -delete
cd "$built"
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1" \
    LDFLAGS="-fsanitize=address,undefined" TOOLWIRE_REQUIRE_EXTENSIONS=1 \
    "$python" setup.py -q build_ext --inplace --force
compiler=${CC:-gcc}
# Python itself leaks by design at its exit, so leaks are not looked for; its allocator is bypassed, so that every access counts.
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONMALLOC=malloc TOOLWIRE_REQUIRE_EXTENSIONS=1 PYTHONPATH=$PWD
if [ $# -eq 0 ]; then set -- tests/parse tests/fuzz/test_targets.py; fi
exec "$python" -m pytest -q -p no:cacheprovider -m "not slow" "$@"
