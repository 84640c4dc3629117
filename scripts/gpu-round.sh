#!/usr/bin/env bash
# Everything that needs a GPU, in one go, on a machine without Rust.
#
#   scripts/gpu-round.sh target/release/warpwright MODEL.gguf...
#
# DEVICE (cuda:0) names the GPU, LOGS (./gpu-round) the folder for each step's output, ROUND chooses steps by a pattern,
# ROWS is target/release/examples/rows (cargo build --release -p warpwright-tests --example rows).
# The last lines are the table to keep. The exit code is 1 if a step failed; a step whose tool is absent says so.
set -uo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage
warpwright=$(realpath "$1") || exit 2
shift
device=${DEVICE:-cuda:0}
logs=${LOGS:-gpu-round}
only=${ROUND:-*}
prompt="The borrow checker"
ids=0,389,1166,882,261,1680,260,2366,13,2818
mkdir -p "$logs"

rows=()
failed=0

# step NAME COMMAND...: runs it, keeps its output, notes the result.
step() {
    local name=$1 log start result
    shift
    # shellcheck disable=SC2053  # the right side is a pattern
    [[ $name == $only ]] || return 0
    log=$logs/${name//[^A-Za-z0-9._-]/_}.log
    start=$SECONDS
    printf '== %s\n' "$name"
    if "$@" >"$log" 2>&1; then
        result=ok
    else
        result="FAILED ($?), see $log"
        failed=1
    fi
    tail -n 12 "$log"
    rows+=("$(printf '| %-44s | %-32s | %4d s |' "$name" "$result" $((SECONDS - start)))")
}

absent() { rows+=("$(printf '| %-44s | %-32s |        |' "$1" "not run: $2")"); }

generate() { "$warpwright" run "$1" --device "$device" --launch "$2" --prompt "$prompt" -n 48; }

# The same tokens as a graph, without overlap, launch by launch, and on the emulator.
same_tokens() {
    local model=$1 mode
    for mode in graph plain eager; do
        "$warpwright" run "$model" --device "$device" --launch $mode --prompt "$prompt" -n 48 --print ids --quiet >"$logs/ids.$mode" || return
    done
    "$warpwright" run "$model" --device emu --prompt "$prompt" -n 48 --print ids --quiet >"$logs/ids.emu" || return
    cat "$logs/ids.graph"
    cmp "$logs/ids.graph" "$logs/ids.plain" && cmp "$logs/ids.graph" "$logs/ids.eager" && cmp "$logs/ids.graph" "$logs/ids.emu"
}

# Logits equal bit for bit as a graph, without overlap and launch by launch, and within 1e-3 of the emulator's.
same_logits() {
    local model=$1 mode
    for mode in graph plain eager; do
        "$warpwright" logits "$model" --device "$device" --launch $mode --ids $ids --out "$logs/logits.$mode" || return
    done
    cmp "$logs/logits.graph" "$logs/logits.plain" && cmp "$logs/logits.graph" "$logs/logits.eager" || return
    "$warpwright" logits "$model" --device emu --ids $ids --out "$logs/logits.emu" || return
    distance "$logs/logits.graph" "$logs/logits.emu"
}

distance() {
    command -v python3 >/dev/null || { echo "no python3: distance to the emulator not computed"; return 0; }
    python3 - "$1" "$2" <<'PY'
import array, math, sys

def floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values

ours, theirs = map(floats, sys.argv[1:])
assert len(ours) == len(theirs) and ours, "different lengths"
error = math.sqrt(sum((a - b) ** 2 for a, b in zip(ours, theirs)) / sum(b * b for b in theirs))
print(f"relative L2 distance to the emulator: {error:.3g}")
sys.exit(not error < 1e-3)
PY
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)

sanitize() {
    local tool=$1
    shift
    # Launch by launch: of many launches at once the tools keep more than they have memory for.
    "$sanitizer" --tool "$tool" --error-exitcode 99 --print-limit 10 --force-synchronization-limit 1 "$warpwright" "$@"
}

# racecheck of a whole decode, so many launches at a time: it keeps what it has seen of all of them until the end.
racecheck_in_parts() {
    local first log=$logs/racecheck.part
    for ((first = 0; first < launches; first += 100)); do
        "$sanitizer" --tool racecheck --error-exitcode 99 --print-limit 10 --launch-skip $first --launch-count 100 \
            "$warpwright" "$@" >"$log" 2>&1 || { tail -n 20 "$log"; return 1; }
        grep 'RACECHECK SUMMARY' "$log" || return
    done
}

step devices "$warpwright" devices
step check "$warpwright" check --device "$device"
if [ -x "${ROWS:-}" ]; then
    step "rows against the emulator" "$ROWS"
else
    absent "rows against the emulator" "ROWS names no target/release/examples/rows"
fi
for model in "$@"; do
    name=$(basename "$model" .gguf)
    step "run graph $name" generate "$model" graph
    step "run eager $name" generate "$model" eager
    step "tokens equal $name" same_tokens "$model"
    step "logits equal $name" same_logits "$model"
done
for tool in memcheck racecheck initcheck synccheck; do
    if [ -z "$sanitizer" ]; then
        absent "$tool" "no compute-sanitizer"
        continue
    fi
    step "$tool check" sanitize $tool check --device "$device"
    # Of longer graphs these two lose track: racecheck is killed, synccheck cannot allocate and says so.
    case $tool in racecheck) tokens=2 ;; synccheck) tokens=6 ;; *) tokens=16 ;; esac
    step "$tool run graph, $tokens tokens" sanitize $tool run "$1" --device "$device" --prompt "The" -n $tokens
    if [ $tool = racecheck ]; then
        # Kernels of a token, and of some tokens more than are asked for: the prompt's, and those of the last launch.
        "$warpwright" graph "$1" --device "$device" --dot "$logs/graph.dot" >/dev/null
        launches=$(($(grep -c '^  n[0-9]* \[label=' "$logs/graph.dot") * 24))
        step "racecheck run eager, 16 tokens in parts" racecheck_in_parts run "$1" --device "$device" --launch eager --prompt "The" -n 16
    else
        step "$tool run eager, 16 tokens" sanitize $tool run "$1" --device "$device" --launch eager --prompt "The" -n 16
    fi
done

printf '\n| %-44s | %-32s | %6s |\n|%s|%s|%s|\n' step result time "$(printf -- '-%.0s' {1..46})" "$(printf -- '-%.0s' {1..34})" "$(printf -- '-%.0s' {1..8})"
printf '%s\n' "${rows[@]}"
exit $failed
