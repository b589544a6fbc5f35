#!/usr/bin/env bash
# Checks the specification of founding, views, leases and vouching with Spin: it holds in small
# worlds, gone through to the end; all that it says happens in one of them; and with a rule taken
# out Spin finds what that rule is good for. Needs spin and gcc. Leaves no file behind.
#
#   check.sh                   all runs, with a table
#   check.sh WORD...           those whose names have one of the words in them
#   check.sh --story WORD...   also tells what happens, step by step, where a rule is broken
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

story=0
[[ ${1:-} != --story ]] || { story=1; shift; }
words=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

main() {
    printf '%-42s %10s %11s %6s %5s  %s\n' run states transitions depth s verdict

    # The rules hold.
    holds "views" views -DEPOCHS=2
    holds "vouching" vouching -DEPOCHS=2
    holds "leases, 2 or 3 voters" leases -DLENGTHS=2 -DSHORTER_LEASES
    holds "leases, three lengths" leases -DLENGTHS=3 -DSHORTER_LEASES -DVOTERS=6
    holds "leases, clocks of any rate" leases -DLENGTHS=2 -DANY_RATE -DVOTERS=6
    holds "leases, voters change" leases -DLENGTHS=1 -DEPOCHS=3 -DVOTERS_CHANGE -DVOTERS=7
    holds "leases, lost states" leases -DLENGTHS=2 -DLOSSES=2
    holds "leases, lost states, shorter leases" \
        leases -DLENGTHS=2 -DLOSSES=2 -DSHORTER_LEASES -DEPOCHS=0
    holds "leases, lost voters are replaced" \
        leases -DLENGTHS=1 -DLOSSES=1 -DEPOCHS=2 -DVOTERS_CHANGE
    # Voters that change, and leases of two lengths: without restarts, or with one view.
    holds "leases, voters change, two lengths" \
        leases -DLENGTHS=2 -DEPOCHS=2 -DVOTERS_CHANGE -DVOTERS=7 -DRESTARTS=false
    holds "leases, voters change, shorter leases" \
        leases -DLENGTHS=2 -DEPOCHS=1 -DVOTERS_CHANGE -DVOTERS=7 -DSHORTER_LEASES
    holds "leases, replaced voters, two lengths" \
        leases -DLENGTHS=2 -DLOSSES=1 -DEPOCHS=2 -DVOTERS_CHANGE -DVOTERS=7 -DRESTARTS=false \
        -DNO_OPERATOR
    holds "leases, new voters and recover" \
        leases -DLENGTHS=2 -DLOSSES=2 -DEPOCHS=1 -DVOTERS_CHANGE -DVOTERS=3
    holds "founding, two clusters" founding -DLOSSES=2
    holds "founding, nobody is stuck" founding -DLOSSES=1 -DHEALED
    holds "founding, other files after recover" founding -DLOSSES=0 -DRECOVERED

    # "Fail closed" 1: two clusters.
    breaks "1: members that do not vote" "two clusters decide" founding -DLOSSES=0 -DWITHOUT_MEMBERS
    breaks "1: more than half of the members" "two clusters decide" \
        founding -DLOSSES=0 -DWITHOUT_ALL_MEMBERS
    # 2: stuck for ever.
    breaks "2: the record is asked" "a host is stuck" \
        founding -DHEALED -DLOSSES=0 -DWITHOUT_ASKING_THE_RECORD
    breaks "2: who is left behind follows" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DWITHOUT_FOLLOWING
    breaks "2: refusals are numbered" "a host is stuck" founding -DHEALED -DLOSSES=0 -DWITHOUT_TURNS
    breaks "2: new births are known of" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DWITHOUT_KNOWING_OF_NEW_BIRTHS
    breaks "2: founders accept" "a host is stuck" \
        founding -DHEALED -DLOSSES=0 -DWITHOUT_FOUNDERS_ACCEPTING
    # Since members of other clusters answer, this rule is one of two that serve such a host.
    breaks "2: who has accepted joins" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DALL_LISTED -DWITHOUT_ANSWERS_BY_MEMBERS \
        -DWITHOUT_JOINING_FROM_ACCEPTED
    # What the simulator found after that: a founding that too few remember.
    breaks "2: who does not vote offers" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DWITHOUT_OFFERS_BY_MEMBERS
    breaks "2: a longer lease refuses at once" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DWITHOUT_REFUSING_AT_ONCE
    breaks "2: members of other clusters answer" "a host is stuck" \
        founding -DHEALED -DLOSSES=1 -DWITHOUT_ANSWERS_BY_MEMBERS
    # 3: a lease that got shorter.
    breaks "3: the longest lease" "two inside" leases -DLENGTHS=3 -DVOTERS=6 -DWITHOUT_LONGEST
    breaks "3: the next lease" "two inside" \
        leases -DLENGTHS=3 -DSHORTER_LEASES -DVOTERS=6 -DWITHOUT_NEXT
    breaks "3: the longest lease is on disk first" "two inside" \
        leases -DLENGTHS=2 -DVOTERS=6 -DWITHOUT_WRITING_LONGEST
    # 4: a founding that does not wait.
    breaks "4: the founding waits" "two inside" \
        leases -DEPOCHS=0 -DLOSSES=2 -DVOTERS=6 -DWITHOUT_FOUNDING_WAIT
    breaks "4: recover keeps the longest lease" "two inside" \
        leases -DEPOCHS=0 -DLOSSES=2 -DVOTERS=6 -DWITHOUT_RECOVER_KEEPING
    breaks "4: new voters begin with the leader's" "two inside" \
        leases -DLENGTHS=2 -DEPOCHS=1 -DLOSSES=1 -DVOTERS_CHANGE -DVOTERS=3 -DRESTARTS=false \
        -DWITHOUT_LEADERS_LONGEST
    # What the simulator found after that: other files once recover was said.
    breaks "recover names the voters" "two clusters decide" \
        founding -DLOSSES=0 -DRECOVERED -DWITHOUT_NAMED_VOTERS
    # 5: suspend.
    breaks "5: the clock goes on in a suspend" "two inside" leases -DVOTERS=6 -DWITHOUT_BOOTTIME

    # The rules of views, leases and vouching.
    breaks "one endorsement an epoch" "two certified views" \
        views -DEPOCHS=1 -DWITHOUT_ONE_ENDORSEMENT
    breaks "both majorities" "two certified views" views -DEPOCHS=2 -DWITHOUT_BOTH_MAJORITIES
    breaks "endorsements are on disk" "two certified views" views -DEPOCHS=1 -DWITHOUT_DISK
    breaks "drift" "two inside" leases -DVOTERS=6 -DWITHOUT_DRIFT
    breaks "a lease counts from its request" "two inside" \
        leases -DLENGTHS=2 -DVOTERS=7 -DWITHOUT_SENDING_TIME
    breaks "a view counts with its certificate" "two inside" \
        leases -DLENGTHS=1 -DEPOCHS=1 -DLOSSES=1 -DVOTERS_CHANGE -DVOTERS=6 \
        -DWITHOUT_CERTIFIED_VIEWS
    breaks "renewals end with the endorsement" "two inside" \
        leases -DVOTERS=6 -DWITHOUT_RENEWALS_ENDING
    breaks "a restart counts as a renewal" "two inside" \
        leases -DVOTERS=6 -DWITHOUT_RESTARTS_COUNTING
    breaks "one voter at a time" "two inside" \
        leases -DLENGTHS=1 -DEPOCHS=2 -DVOTERS_CHANGE -DVOTERS=7 -DWITHOUT_ONE_VOTER_AT_A_TIME
    breaks "voters change from what is in force" "two inside" \
        leases -DLENGTHS=1 -DEPOCHS=3 -DVOTERS_CHANGE -DVOTERS=7 -DWITHOUT_INSTALLED_PARENT
    breaks "... and was renewed under" "two inside" \
        leases -DLENGTHS=1 -DEPOCHS=3 -DVOTERS_CHANGE -DVOTERS=7 -DWITHOUT_RENEWED_PARENT
    breaks "the wait for leases" "two inside" vouching -DEPOCHS=1 -DWITHOUT_WAIT -DJUDGED=1
    breaks "who missed a view does not vouch" "two inside" \
        vouching -DEPOCHS=2 -DWITHOUT_MISSED_VIEWS_COUNTING -DJUDGED=1
    breaks "... nor is anybody told" "nobody was told" \
        vouching -DEPOCHS=2 -DWITHOUT_MISSED_VIEWS_COUNTING -DJUDGED=2
    breaks "a quarantine goes on in the next view" "two inside" \
        vouching -DEPOCHS=2 -DWITHOUT_QUARANTINES_GOING_ON -DJUDGED=1
    breaks "locks that nobody names are in quarantine" "two inside" \
        vouching -DEPOCHS=2 -DWITHOUT_UNNAMED_IN_QUARANTINE -DJUDGED=1
    breaks "the lowest member knows all locks" "two inside" \
        vouching -DEPOCHS=2 -DWITHOUT_DECLARING -DJUDGED=1
    breaks "members stop before they report" "two inside" \
        vouching -DEPOCHS=1 -DWITHOUT_STOPPING -DJUDGED=1
    breaks "what was not told is told on" "nobody was told" \
        vouching -DEPOCHS=2 -DWITHOUT_TELLING_ON -DJUDGED=2

    # What is not promised is a limit indeed: doc/fail-closed.md, "Cannot", and the models.
    breaks "limit: voters are left out" "two clusters decide" \
        founding -DLOSSES=0 -DWITH_VOTERS_LEFT_OUT
    breaks "limit: recover beside a majority" "two clusters decide" \
        founding -DLOSSES=0 -DCHANGES=0 -DWITH_RECOVER_TOO_EARLY
    breaks "limit: recover during a founding" "a host is stuck" \
        founding -DHEALED -DLOSSES=2 -DCHANGES=0 -DREFUSALS=0 -DWITH_RECOVER_DURING_A_FOUNDING
    breaks "limit: nobody remembers the lease" "two inside" \
        leases -DEPOCHS=0 -DLOSSES=2 -DVOTERS=6 -DWITH_ALL_FORGOTTEN

    if ((${#failed[@]})); then
        echo "${#failed[@]} of the runs above did not end as they have to. Again, with stories:" >&2
        printf '    agent/lab/spec/check.sh --story %q\n' "${failed[@]}" >&2
        exit 1
    fi
    ((${#words[@]})) || all_used
}

# holds NAME MODEL MACRO...
holds() {
    wanted "$1" || return 0
    # Each statement is a transition of its own, so that it is known which were executed.
    merging=(-o3)
    explore "$2" "-O1" "${@:3}"
    local verdict="holds"
    if [[ ${errors:-} != 0 ]]; then
        verdict="BROKEN: $(told | tail -n 1)"
    elif grep -qE 'not completed|too small|out of memory|MEMLIM' "$run/out"; then
        verdict="NOT GONE THROUGH TO THE END"
    fi
    [[ $verdict == holds ]] || failed+=("$1")
    row "$1" "$verdict"
    note_what_is_used "$2"
}

# breaks NAME WORDS MODEL MACRO...: the shortest story ends with what these words tell.
breaks() {
    wanted "$1" || return 0
    merging=()
    explore "$3" "-O0 -DBFS" -DSTEP=d_step "${@:4}"
    local end verdict
    end=$(told | tail -n 1)
    verdict="found: $end"
    if [[ ${errors:-0} == 0 || $end != *"$2"* ]]; then
        verdict="NOT FOUND: $2"
        failed+=("$1")
    fi
    row "$1" "$verdict"
}

wanted() {
    local word
    for word in "${words[@]}"; do
        [[ $1 != *"$word"* ]] || return 0
    done
    ((${#words[@]} == 0))
}

# explore MODEL "OPTION..." MACRO...: with options of gcc, sets run, model, macros, states,
# transitions, depth, errors and seconds. Spin writes into the directory that it is in.
explore() {
    local started=${EPOCHREALTIME/[.,]/} options
    run=$scratch/run
    model=$1
    macros=("${@:3}")
    read -ra options <<<"$2"
    rm -rf "$run"
    mkdir "$run"
    cp "$model.pml" "$run"
    (
        cd "$run"
        spin "${merging[@]}" "${macros[@]}" -a "$model.pml" >log 2>&1 || { cat log >&2; exit 1; }
        # All is in global variables, so there is nothing that partial order could spare.
        gcc "${options[@]}" -w -DSAFETY -DNOREDUCE -DNOFAIR -DCOLLAPSE -DMEMLIM=1400 \
            -o pan pan.c
        ./pan -E -m200000 -w22 >out 2>&1 || true
    )
    states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' "$run/out")
    transitions=$(sed -nE 's/^ *([0-9.e+]+) transitions .*/\1/p' "$run/out")
    depth=$(sed -nE 's/.*depth reached ([0-9]+), errors.*/\1/p' "$run/out")
    errors=$(sed -nE 's/.*depth reached [0-9]+, errors: ([0-9]+).*/\1/p' "$run/out")
    seconds=$(((${EPOCHREALTIME/[.,]/} - started) / 100000))
}

row() {
    printf '%-42s %10s %11s %6s %3d.%d  %s\n' "$1" "${states:--}" "${transitions:--}" \
        "${depth:--}" $((seconds / 10)) $((seconds % 10)) "$2"
    if ((story && ${errors:-0})); then
        told | sed 's/^/    /'
    fi
}

# What the models say of themselves in the story that was found.
told() {
    [[ -e $run/$model.pml.trail ]] || return 0
    (cd "$run" && spin "${merging[@]}" "${macros[@]}" -t "$model.pml") | sed -n 's/^ *# //p'
}

# A rule that never does anything shows nothing: each statement of a model must be executed in one
# of the runs in which the model holds. A statement is known by its line and its first letters;
# numbers in it are the run's.
note_what_is_used() {
    (cd "$run" && ./pan -d) |
        sed -nE "s/.* $1\.pml:([0-9]+) => ([^-].{0,15}).*/\1 \2/p" >"$run/all"
    sed -nE "s/.*\b$1\.pml:([0-9]+), state [0-9]+, \"([^-\"][^\"]{0,15}).*/\1 \2/p" "$run/out" \
        >"$run/unused"
    awk -v all="$scratch/$1.all" -v used="$scratch/$1.used" '
        { line = $1; $1 = ""; gsub(/[0-9]+/, "N"); $0 = line $0 }
        FILENAME ~ /unused$/ { unused[$0]++; next }
        { total[$0]++ }
        END {
            for (statement in total) {
                print statement >>all
                if (unused[statement] < total[statement]) print statement >>used
            }
        }' "$run/unused" "$run/all"
}

all_used() {
    local name line status=0
    for name in views vouching leases founding; do
        while read -r line; do
            [[ $(sed -n "${line}p" "$name.pml") != *assert\(false\)* ]] || continue
            printf '%s.pml:%d: something here is executed in no run: %s\n' "$name" "$line" \
                "$(sed -n "${line}s/^ *//p" "$name.pml")" >&2
            status=1
        done < <(comm -23 <(sort -u "$scratch/$name.all") <(sort -u "$scratch/$name.used") |
            cut -d ' ' -f 1 | sort -nu)
    done
    return "$status"
}

main
