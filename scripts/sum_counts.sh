#!/bin/sh
# sum_counts.sh FILE: lines of "passed failed skipped" to the closing line of a test run, behind what failed (FILE.failed).
if [ -s "$1.failed" ]; then
  echo "== what failed"
  cat "$1.failed"
fi
awk '{ p += $1; f += $2; s += $3 }
     END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit !(p > 0 && f == 0) }' "$1"
