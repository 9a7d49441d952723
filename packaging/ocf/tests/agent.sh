#!/bin/sh
# The cases of the OCF agent that a cluster of two nodes does not play: daemon and cluster are stubs here, which read what they say from
# files. Two words: the agent, an empty folder.
set -u
agent=$1 T=$2
export T
mkdir -p "$T/bin" "$T/run"
PATH="$T/bin:$PATH"
failed=0

stub() { cat > "$T/bin/$1"; chmod 755 "$T/bin/$1"; }
stub farshore <<'END'
#!/bin/sh
# NAME.then: the status after the command; NAME.peer: the peer's. NAME.code: its exit code, NAME.again: that of the next. NAME.says: its
# words, once.
verb=$1
case "$*" in *--force*) verb=force ;; esac
case $verb in
    status)
        cat "$T/status" 2>/dev/null || { echo farshore_answered=no-daemon; exit 2; }
        echo "farshore_devices=$(cat "$T/devices" 2>/dev/null || echo none)"
        case "$*" in *--local*) ;; *) sed 's/farshore_/farshore_peer_/g' "$T/peer" 2>/dev/null ;; esac
        exit 0 ;;
esac
echo "$verb" >> "$T/orders"
if [ -e "$T/$verb.says" ]; then cat "$T/$verb.says"; rm "$T/$verb.says"; exit 2; fi
if [ -e "$T/$verb.then" ]; then cp "$T/$verb.then" "$T/status"; fi
if [ -e "$T/$verb.peer" ]; then mv "$T/$verb.peer" "$T/peer"; fi
echo "$verb was answered"
code=$(cat "$T/$verb.code" 2>/dev/null || echo 0)
if [ -e "$T/$verb.again" ]; then mv "$T/$verb.again" "$T/$verb.code"; fi
exit "$code"
END
# Properties and attributes are files, those of another node than this one NAME@NODE. NAME.fails: no answer. NAME.read-only: no change.
stub crm_attribute <<'END'
#!/bin/sh
query=no value= of=
while [ $# -gt 0 ]; do
    case $1 in
        --name) name=$2; shift ;;
        --node) [ "$2" = alpha ] || of=@$2; shift ;;
        --update) value=$2; shift ;;
        --update=*) value=${1#*=} ;;
        --query) query=yes ;;
        --delete) query=delete ;;
        -p) name=score ;;
    esac
    shift
done
[ ! -e "$T/$name$of.fails" ] || exit 102
[ $query = yes ] || [ ! -e "$T/$name$of.read-only" ] || exit 102
if [ $query = delete ]; then rm -f "$T/fact-$name$of"; exit 0; fi
if [ $query = no ]; then echo "$value" > "$T/fact-$name$of"; exit 0; fi
cat "$T/fact-$name$of" 2>/dev/null || exit 105
END
stub attrd_updater <<'END'
#!/bin/sh
order=
while [ $# -gt 0 ]; do
    case $1 in --name) name=$2; shift ;; --node) node=$2; shift ;; --query|--delete) order=$1 ;; --update) order=$1; shift ;; esac
    shift
done
[ ! -e "$T/attrd$order.fails" ] || exit 102
[ ! -e "$T/attrd$order.fails-once" ] || { rm "$T/attrd$order.fails-once"; exit 102; }
case $order in
    --update) : > "$T/behind-$node" ;;
    --delete) rm -f "$T/behind-$node" ;;
    *) [ -e "$T/behind-$node" ] || exit 105; echo "name=\"$name\" host=\"$node\" value=\"1\"" ;;
esac
END
stub crm_node <<'END'
#!/bin/sh
[ -e "$T/members" ] && cat "$T/members"
END
# Nobody waits here: each look at the clock is five seconds later. sleep.then: the status after the first pause; sleep.peer: the peer's.
stub sleep <<'END'
#!/bin/sh
[ ! -e "$T/sleep.then" ] || mv "$T/sleep.then" "$T/status"
[ ! -e "$T/sleep.peer" ] || mv "$T/sleep.peer" "$T/peer"
END
# VERB.hangs: the order is not answered before the time is over, which is as long as it says.
stub timeout <<'END'
#!/bin/sh
if [ -e "$T/$3.hangs" ]; then
    [ "$3" = status ] || echo "$3" >> "$T/orders"
    echo $(($(cat "$T/clock") + $1)) > "$T/clock"
    exit 124
fi
shift
exec "$@"
END
stub date <<'END'
#!/bin/sh
now=$(($(cat "$T/clock" 2>/dev/null || echo 0) + 5))
echo $now | tee "$T/clock"
END
cat > "$T/ocf-shellfuncs" <<'END'
OCF_SUCCESS=0 OCF_ERR_GENERIC=1 OCF_ERR_ARGS=2 OCF_ERR_UNIMPLEMENTED=3 OCF_ERR_INSTALLED=5 OCF_ERR_CONFIGURED=6 OCF_NOT_RUNNING=7
ocf_log() { echo "$*" >> "$T/log"; }
ocf_exit_reason() { echo "$*" >> "$T/log"; }
ocf_is_true() { case $1 in yes|true|1|YES|TRUE|True|ja|on|ON) true ;; *) false ;; esac; }
ocf_is_probe() { [ "${PROBE:-no}" = yes ]; }
ocf_local_nodename() { echo alpha; }
ocf_promotion_score() { crm_attribute -p "$@"; }
END

# A case begins with a healthy cluster.
begin() {
    case_name=$1
    find "$T" -maxdepth 1 -type f ! -name ocf-shellfuncs -delete
    rm -rf "$T/run"; mkdir "$T/run"
    echo "alpha beta " > "$T/members"
}
daemon() { # key=value ..., of a copy that is in step unless they say otherwise
    condition=copy
    case "$*" in *role=primary*) condition=serving ;; esac
    {
        echo "farshore_answered=yes farshore_condition=$condition farshore_role=secondary farshore_state=replicating farshore_promotable=yes"
        echo "farshore_in_step=yes farshore_peer=beta farshore_linked=yes farshore_generation=3.cafe farshore_term=t1"
        echo "$*"
    } > "${to:-$T/status}"
}
then_daemon() { file=$1; shift; to="$T/$file.then"; daemon "$@"; to=; }
peer_says() { to="$T/peer"; daemon "$@"; to=; }
then_peer() { to="$T/$1.peer"; shift; daemon "$@"; to=; }
no_daemon() { rm -f "$T/status"; }
fact() { echo "$2" > "$T/fact-$1"; }
last_was() { fact farshore-primary-db "$1"; }
cut() { daemon farshore_linked=no farshore_in_step=no farshore_state=logging "$@"; }
act() { # action, the code that is expected
    env OCF_FUNCTIONS_DIR="$T" HA_RSCTMP="$T/run" OCF_RESOURCE_INSTANCE=db OCF_RESKEY_crm_feature_set=3.16 OCF_RESKEY_group=db \
        OCF_RESKEY_binary="$T/bin/farshore" OCF_RESKEY_allow_force="${force:-false}" OCF_RESKEY_attach="${attach:-false}" \
        OCF_RESKEY_CRM_meta_timeout="${limit:-120000}" PROBE="${probe:-no}" sh "$agent" "$1" > "$T/output" 2>&1
    code=$?
    holds "$1 ends with $2, not $code" [ "$code" = "$2" ]
}
holds() {
    what=$1; shift
    if "$@"; then return 0; fi
    echo "FAILED: $case_name: $what"
    cat "$T/output" "$T/log" 2>/dev/null | sed 's/^/    /'
    failed=$((failed + 1))
}
score() { holds "the score is $1, not $(cat "$T/fact-score" 2>/dev/null)" [ "$(cat "$T/fact-score" 2>/dev/null)" = "$1" ]; }
ordered() { holds "orders: $1" [ "$(cat "$T/orders" 2>/dev/null | tr "\n" " ")" = "$1" ]; }
keeps() { holds "$1 is kept" [ "$(cat "$T/fact-farshore-generation-db" 2>/dev/null)" = "$1" ]; }
is_last() { holds "the last primary is $1" [ "$(cat "$T/fact-farshore-primary-db" 2>/dev/null)" = "$1" ]; }
there() { holds "$1 is there" [ -e "$T/$1" ]; }
gone() { holds "$1 is not there" [ ! -e "$T/$1" ]; }
remembers() { there run/farshore-db.in-step; }
forgets() { gone run/farshore-db.in-step; }
primary() { daemon farshore_role=primary "$@"; }
promoting() { daemon farshore_condition=promoting farshore_in_step=no "$@"; }
closed() { primary farshore_condition=closed farshore_in_step=no farshore_state=logging farshore_linked=no "$@"; }
says() { holds "'$1' is said" grep -qF -- "$1" "$T/log"; }

# Promotion

begin "an unforced promotion that is answered well and did not happen"
daemon; last_was beta
act promote 1; ordered "promote "; is_last beta; score -INFINITY

begin "a daemon that is gone after the order to promote"
daemon; last_was beta; echo farshore_answered=no-daemon > "$T/promote.then"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "; is_last beta

begin "a forced promotion that is answered well and did not happen"
force=true; daemon; : > "$T/run/farshore-db.started"; act monitor 0; remembers
cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote force "; is_last beta

begin "a forced promotion beside which the daemon is gone"
daemon; : > "$T/run/farshore-db.in-step"
cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"; echo farshore_answered=error > "$T/force.then"
act promote 1; is_last beta

begin "a forced promotion"
: > "$T/run/farshore-db.in-step"
cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"; then_daemon force farshore_role=primary farshore_in_step=no
act promote 0; is_last alpha; there behind-beta

begin "no force while the other node is a member"
: > "$T/run/farshore-db.in-step"
cut; last_was beta; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "; is_last beta

begin "no force where the cluster does not say who is a member"
: > "$T/run/farshore-db.in-step"
cut; last_was beta; rm "$T/members"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

begin "no force where the cluster does not say who was promoted last"
: > "$T/run/farshore-db.in-step"; : > "$T/farshore-primary-db.fails"
cut; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

begin "no force where it is not known whether the copy is behind"
: > "$T/run/farshore-db.in-step"; : > "$T/attrd--query.fails"
cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

for name in stonith-enabled fencing-enabled; do
    for off in false False No OFF 0 n; do
        begin "no force with $name=$off"
        : > "$T/run/farshore-db.in-step"; fact $name $off
        cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
        act promote 1; ordered "promote "
    done
    for on in true Yes On 1; do
        begin "force with $name=$on"
        : > "$T/run/farshore-db.in-step"; fact $name $on; then_daemon force farshore_role=primary
        cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
        act promote 0; ordered "promote force "
    done
done

begin "no force where one name says that fencing is on, and the other that it is off"
: > "$T/run/farshore-db.in-step"; fact stonith-enabled true; fact fencing-enabled false
cut; last_was beta; echo alpha > "$T/members"; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "
force=false

begin "a promotion that goes on in the daemon is waited for, and never forced"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says
echo "this is not done after 100s, and goes on in the daemon" > "$T/promote.says"; then_daemon sleep farshore_role=primary
act promote 0; ordered "promote "; is_last alpha
begin "and one that never ends fails"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; echo 2 > "$T/promote.code"
sed -i 's/was answered/is under way already, and goes on/' "$T/bin/farshore"; act promote 1; is_last alpha
holds "no force" sh -c "! grep -q force '$T/orders'"
sed -i 's/is under way already, and goes on/was answered/' "$T/bin/farshore"
begin "so is one that is not answered in the time of the action"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; : > "$T/promote.hangs"
act promote 1; says "not known whether db was promoted"; says "goes on in the daemon"; is_last alpha
holds "no force" sh -c "! grep -q force '$T/orders'"
begin "and one that came to nothing is decided anew"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; echo 2 > "$T/promote.code"
echo "a promotion is under way already, and goes on" > "$T/promote.says"; then_daemon force farshore_role=primary
act promote 0; ordered "promote promote force "

# A promotion that runs

begin "it is neither a copy nor a primary"
promoting; last_was beta; probe=yes; act monitor 7; probe=no; score -INFINITY; act start 1; says "being promoted here"
: > "$T/run/farshore-db.started"; act monitor 0; score -INFINITY; says "neither a copy nor a primary"; forgets; keeps ""; is_last beta; ordered ""
begin "and waited for by each action"
promoting; last_was alpha; then_daemon sleep farshore_role=primary farshore_in_step=no; act start 0; score 10000; there behind-beta
promoting; then_daemon sleep farshore_role=primary; act monitor 8; promoting; then_daemon sleep; act monitor 0; score 1000
promoting; then_daemon sleep farshore_role=primary; then_daemon demote; act demote 0; ordered "demote "
begin "a promotion that finds one waits for that"
promoting; last_was beta; then_daemon sleep farshore_role=primary; act promote 0; is_last alpha; keeps 3.cafe/t1; ordered ""
promoting; act promote 1; says "not known whether db was promoted"; ordered "promote "

for before in primary copy; do
    begin "no demotion is taken back beside one of the other node, and nobody else is promoted: $before"
    : > "$T/run/farshore-db.started"
    daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; act monitor 0; score 500
    peer_says farshore_condition=promoting; [ $before = copy ] || peer_says farshore_condition=promoting farshore_role=primary
    act monitor 0; score -INFINITY; act notify 0; score -INFINITY
    echo 2 > "$T/promote.code"; act promote 1; says "being promoted on beta"; ordered ""; is_last alpha
done
begin "nor without force, and not in the time of one that is refused"
daemon; last_was beta; peer_says farshore_condition=promoting; then_daemon promote farshore_role=primary
act promote 1; ordered ""; then_peer sleep; act promote 0; ordered "promote "; is_last alpha
begin "one that begins behind the order without force leaves no force"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; echo 2 > "$T/promote.code"
then_peer promote farshore_condition=promoting; act promote 1; ordered "promote "
for theirs in farshore_condition=promoting farshore_role=primary; do
    begin "nor where the other node has left the cluster, and its daemon answers: $theirs"
    cut; last_was alpha; fact farshore-generation-db 3.cafe:demoted; echo alpha > "$T/members"; peer_says $theirs
    act notify 0; score -INFINITY; echo 2 > "$T/promote.code"; act promote 1; ordered "promote "
    force=true; last_was beta; : > "$T/run/farshore-db.in-step"; act promote 1; ordered "promote promote "
    rm "$T/peer"; then_daemon force farshore_role=primary; act promote 0; ordered "promote promote promote force "; force=false
done
begin "a primary is not asked about beside one before that ends"
primary; last_was alpha; fact farshore-generation-db 3.cafe/t1; peer_says farshore_condition=promoting
act start 1; says "being promoted on beta"; keeps 3.cafe/t1; then_peer sleep; act start 0; score 10000; ordered ""

begin "one that the cluster ordered, and that does not end, is never left behind"
daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1; promoting; : > "$T/run/farshore-db.started"
act demote 1; says "may be primary soon"; act stop 1; ordered "promote "
daemon farshore_condition=starting; act stop 1; echo farshore_answered=error > "$T/status"; act stop 1
daemon; act stop 0; gone run/farshore-db.promoting
begin "and where it ends late the cluster has it as its own"
daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1; rm "$T/promote.hangs"; promoting
then_daemon sleep farshore_role=primary farshore_generation=4.cafe; then_daemon demote farshore_generation=4.cafe farshore_in_step=no
act demote 0; is_last alpha; keeps 4.cafe/t1:demoted; ordered "promote demote "; gone run/farshore-db.promoting
for next in monitor probe stop; do
    begin "also by the next action of another kind: $next"
    daemon; last_was beta; fact farshore-generation-db@beta 3.cafe; act start 0; : > "$T/promote.hangs"; act promote 1
    primary farshore_generation=4.cafe; then_daemon demote farshore_generation=4.cafe farshore_in_step=no
    case $next in monitor) act monitor 8 ;; probe) probe=yes; act monitor 8; probe=no ;; stop) act stop 0 ;; esac
    is_last alpha; gone run/farshore-db.promoting; [ $next = stop ] || { keeps 4.cafe/t1; score 10000; ordered "promote "; }
done
begin "but not beside another primary, and one that was refused is none"
daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1; primary farshore_generation=4.cafe
peer_says farshore_role=primary; act stop 0; says "stays primary here"; is_last beta
daemon; peer_says; act start 0; echo 2 > "$T/promote.code"; rm "$T/promote.hangs"; act promote 1; gone run/farshore-db.promoting
: > "$T/run/farshore-db.promoting"; act monitor 0; gone run/farshore-db.promoting
daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1; primary farshore_generation=4.cafe
peer_says farshore_role=primary; act monitor 7; rm "$T/peer"; act monitor 7; is_last beta; gone run/farshore-db.promoting
begin "nor where an operator gave the cluster another primary meanwhile"
daemon; last_was beta; fact farshore-generation-db@beta 3.cafe:demoted; act start 0; : > "$T/promote.hangs"; act promote 1
fact farshore-generation-db@beta 4.beef/t9; peer_says farshore_role=primary farshore_generation=4.beef farshore_term=t9
primary farshore_generation=5.cafe; then_daemon demote farshore_generation=5.cafe; act monitor 7; is_last beta
gone run/farshore-db.promoting; holds "the score is not 10000" [ "$(cat "$T/fact-score")" != 10000 ]
for gone in daemon start; do
    begin "nor is it forgotten by a stop beside a daemon that is gone or a group that has failed: $gone"
    daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1
    if [ $gone = daemon ]; then no_daemon; else daemon farshore_condition=halted farshore_state=failed; fi
    act demote 1; act stop 1; there run/farshore-db.promoting
done
begin "a probe finds what runs, and a start the end of it"
daemon; last_was beta; act start 0; : > "$T/promote.hangs"; act promote 1; promoting; probe=yes; act monitor 0; probe=no
primary farshore_generation=4.cafe; act start 0; is_last alpha; keeps 4.cafe/t1; ordered "promote "
begin "what the other node said a moment before the order leaves no force"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says; echo 2 > "$T/promote.code"
then_peer sleep farshore_role=primary; act promote 1; ordered "promote "
begin "one that an operator ordered is left, as what it leads to is"
promoting; last_was beta; : > "$T/run/farshore-db.started"; act stop 0; says "has not ordered"; ordered ""

begin "a demotion is taken back"
primary; last_was alpha; act monitor 8; keeps 3.cafe/t1
then_daemon demote farshore_in_step=no; peer_says; act demote 0; score 500; keeps 3.cafe/t1:demoted
gone behind-beta
echo 2 > "$T/promote.code"; then_daemon force farshore_role=primary
act promote 0; ordered "demote promote force "
keeps 3.cafe/t1
rm "$T/orders"; daemon farshore_in_step=no; fact farshore-generation-db 3.cafe:demoted; fact stonith-enabled No
act promote 1; ordered "promote "

begin "and where the other node is gone"
cut; last_was alpha; fact farshore-generation-db 3.cafe:demoted; echo alpha > "$T/members"
act notify 0; score 500; echo 2 > "$T/promote.code"; then_daemon force farshore_role=primary; act promote 0; ordered "promote force "

for linked in yes no; do
    begin "no demotion is taken back while a member does not say that it is a copy, linked: $linked"
    primary; last_was alpha; act monitor 8; then_daemon demote farshore_in_step=no farshore_linked=$linked; act demote 0; rm "$T/orders"
    act monitor 0; holds "the score is not 500" [ "$(cat "$T/fact-score")" != 500 ]
    echo 2 > "$T/promote.code"; act promote 1; ordered "promote "
    peer_says farshore_role=primary; act promote 1; ordered "promote promote "
    peer_says farshore_role= farshore_condition=starting; act promote 1; ordered "promote promote promote "
    # A copy's role is what a group begins with whose record could not be read.
    peer_says farshore_condition=halted farshore_state=failed farshore_generation=0-00000000; act monitor 0
    holds "the score is not 500" [ "$(cat "$T/fact-score")" != 500 ]; act promote 1; ordered "promote promote promote promote "
done

for theirs in 4.beef 3.beef ''; do
    begin "nor beside a copy that may have been promoted by hand and demoted since: '$theirs'"
    daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; peer_says farshore_generation=$theirs
    act notify 0; holds "the score is not 500" [ "$(cat "$T/fact-score")" != 500 ]
    echo 2 > "$T/promote.code"; act promote 1; ordered "promote "
done

begin "nor while the daemon of one that is gone is linked"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe:demoted; echo alpha > "$T/members"
act notify 0; score -INFINITY; echo 2 > "$T/promote.code"; act promote 1; ordered "promote "

begin "what an operator demoted is not taken back"
primary; last_was alpha; act monitor 8; daemon farshore_in_step=no; peer_says; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

begin "an export that is closed when it is demoted waits for an operator, whoever is gone"
closed; last_was alpha; : > "$T/run/farshore-db.in-step"; act promote 1
then_daemon demote farshore_in_step=no; peer_says; act demote 0; keeps 3.cafe/t1:undecided; score -INFINITY; forgets
echo 2 > "$T/promote.code"; act promote 1; ordered "demote promote "; cut; echo alpha > "$T/members"
force=true; act monitor 0; score -INFINITY; act promote 1; ordered "demote promote promote "; force=false
primary farshore_generation=4.cafe farshore_in_step=no farshore_state=logging; act monitor 8; keeps 4.cafe/t1; score 10000

begin "a node with another history takes no demotion back, whatever the property says"
primary; last_was alpha; act monitor 8
daemon farshore_in_step=no farshore_generation=0.0; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

begin "a node that was never demoted by itself takes nothing back"
last_was alpha; daemon farshore_in_step=no; echo 2 > "$T/promote.code"
act promote 1; ordered "promote "

# A primary that was promoted by hand while there was no cluster

begin "a primary with a later history than the last one had is left as it is"
primary farshore_generation=4.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe
: > "$T/run/farshore-db.started"; : > "$T/run/farshore-db.primary"
probe=yes; act monitor 7; probe=no; gone run/farshore-db.started; score -INFINITY
act start 1; says "promoted here by hand"; says "farshore-primary-db --update alpha"; act monitor 7; act stop 0; ordered ""; is_last beta
last_was alpha; probe=yes; act monitor 8; probe=no; act monitor 8; score 10000; ordered ""

for own in 3.beef 2.beef/t1 3.beef:demoted 1.beef/t1:demoted; do
    begin "and one that was replaced, also where it went on alone, is demoted: $own"
    primary farshore_generation=3.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe
    fact farshore-generation-db $own; then_daemon demote farshore_in_step=no
    probe=yes; act monitor 8; probe=no; act start 0; ordered "demote "; keeps ""
done

for own in '' 1.beef 2.beef 2.beef/t0 2.beef/t0:demoted; do
    begin "and one of the same number that nobody is known to have replaced is left: ${own:-none}"
    primary farshore_generation=3.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe
    [ -z "$own" ] || fact farshore-generation-db $own
    probe=yes; act monitor 7; probe=no; act start 1; says "promoted here by hand"; act stop 0; ordered ""; is_last beta
done

begin "a copy that follows another primary has no history of its own"
daemon; last_was beta; fact farshore-generation-db 2.beef; act start 0; keeps ""
fact farshore-generation-db 2.beef; last_was alpha; act monitor 0; keeps 2.beef

begin "an answer of the cluster that is missing demotes nobody"
primary farshore_generation=4.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe
: > "$T/farshore-primary-db.fails"
probe=yes; act monitor 7; probe=no; act start 1; act stop 1; says "does not say who was promoted last"; ordered ""
rm "$T/farshore-primary-db.fails"
for file in farshore-generation-db farshore-generation-db@beta; do
    : > "$T/$file.fails"; probe=yes; act monitor 7; probe=no; act start 1; act stop 1; ordered ""; rm "$T/$file.fails"
done

begin "a promotion that the cluster did not learn of leaves nothing that looks replaced"
daemon; last_was beta; fact farshore-generation-db@beta 3.cafe; : > "$T/farshore-primary-db.fails"
then_daemon promote farshore_role=primary farshore_generation=4.cafe; act promote 1; keeps ""

begin "and no primary that looks as if it was promoted by hand"
daemon; last_was beta; fact farshore-generation-db@beta 3.cafe; : > "$T/farshore-primary-db.read-only"
then_daemon promote farshore_role=primary farshore_generation=4.cafe; then_daemon demote
act promote 1; ordered "promote demote "; says "farshore-primary-db cannot be written"; is_last beta; keeps ""

begin "where the generation cannot be kept nobody is promoted"
daemon; last_was beta; then_daemon promote farshore_role=primary farshore_generation=4.cafe; : > "$T/farshore-generation-db.fails"
act promote 1; says "farshore-generation-db cannot be written"; is_last alpha

begin "and one that the cluster had started as a copy"
daemon; last_was beta; act start 0; primary farshore_generation=4.beef; fact farshore-generation-db@beta 3.cafe; then_daemon demote
act monitor 7; score -INFINITY; act stop 0; act start 1; says "promoted here by hand"; act stop 0; ordered ""
begin "and before the monitor looks"
daemon; last_was beta; act start 0; primary farshore_generation=4.beef; fact farshore-generation-db@beta 3.cafe; then_daemon demote
act demote 1; says "not known that this primary is of before"; ordered ""
begin "also where the cluster does not say who was promoted last"
daemon; last_was beta; act start 0; primary farshore_generation=4.beef; fact farshore-generation-db@beta 3.cafe; then_daemon demote
: > "$T/farshore-primary-db.fails"; act demote 1; act monitor 8; keeps ""; act demote 1; act stop 1; says "does not say who was promoted last"
rm "$T/farshore-primary-db.fails"; act stop 0; says "stays primary here"; ordered ""
begin "also where it is to be stopped"
daemon; last_was beta; act start 0; primary farshore_generation=4.beef; fact farshore-generation-db@beta 3.cafe; then_daemon demote
act stop 0; says "stays primary here"; ordered ""
begin "and one that was promoted by the cluster, and replaced since, is demoted"
primary; last_was alpha; act start 0; last_was beta; then_daemon demote farshore_in_step=no; act monitor 8; act demote 0; ordered "demote "

begin "the last primary, beside one that was promoted by hand"
primary farshore_in_step=no farshore_state=logging; last_was alpha; peer_says farshore_role=primary farshore_generation=4.beef
fact farshore-generation-db 2.cafe/t1
then_daemon demote farshore_in_step=no
probe=yes; act monitor 7; probe=no; act start 0; ordered "demote "; says "promoted by hand"; score -INFINITY
act monitor 0; score -INFINITY; keeps 3.cafe/t1:undecided
echo 2 > "$T/promote.code"; act promote 1; ordered "demote promote "
rm "$T/peer"; act monitor 0; score -INFINITY; act promote 1; echo alpha > "$T/members"; cut; act promote 1
ordered "demote promote promote promote "

for theirs in 2.beef 3.beef 4.beef; do
    begin "and beside one that was replaced, also where it went on alone: $theirs"
    primary; last_was alpha; peer_says farshore_role=primary farshore_generation=$theirs; fact farshore-generation-db@beta 2.beef/t1
    probe=yes; act monitor 8; probe=no; act start 0; ordered ""; score 10000
done

for theirs in 2.beef 3.beef; do
    begin "and beside one of which it is not known: asked, and nobody is demoted"
    primary; last_was alpha; peer_says farshore_role=primary farshore_generation=$theirs
    probe=yes; act monitor 7; probe=no; act start 1; says "not known who was promoted last"; act stop 0
    ordered ""
done

for own in '' 2.cafe 2.cafe/t0 3.cafe/t1; do
    begin "nor is it known where the last primary was promoted by hand too, or the other one serves nobody: ${own:-none}"
    primary; last_was alpha; peer_says farshore_role=primary farshore_generation=4.beef
    [ -z "$own" ] || fact farshore-generation-db $own
    if [ "$own" = 3.cafe/t1 ]; then peer_says farshore_role=primary farshore_generation=4.beef farshore_condition=closed; fi
    act start 1; says "not known who was promoted last"; act stop 0; ordered ""
done

begin "and beside one that was promoted by hand after it was replaced"
primary; last_was alpha; peer_says farshore_role=primary farshore_generation=3.beef; fact farshore-generation-db@beta 2.beef/t0
act start 1; says "not known who was promoted last"; act stop 0; ordered ""

begin "two primaries that a new cluster finds: a probe keeps nothing of what start asks about"
primary; peer_says farshore_role=primary farshore_generation=3.beef
probe=yes; act monitor 7; probe=no; is_last ""; keeps ""; act start 1; is_last ""
# The other node was quicker.
last_was beta; fact farshore-generation-db@beta 3.beef/t1; rm "$T/fact-farshore-generation-db"
probe=yes; act monitor 7; probe=no; act start 1; says "promoted here by hand"; act stop 0; ordered ""

begin "what was asked is not answered by silence"
primary; last_was alpha; peer_says farshore_role=primary farshore_generation=3.beef
act start 1; rm "$T/peer"; probe=yes; act monitor 7; probe=no; act start 1; act stop 0; ordered ""
peer_says; act start 0; keeps 3.cafe/t1; score 10000

begin "a promotion by hand here is known where a demotion there could be taken back"
primary farshore_generation=4.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe:demoted
act start 1; says "promoted here by hand"
holds "the other node is told" [ "$(cat "$T/fact-farshore-generation-db@beta")" = 3.cafe:undecided ]
begin "and where the last primary may come back as one and hear nothing of this one"
primary farshore_generation=4.beef farshore_in_step=no farshore_state=logging; last_was beta; fact farshore-generation-db@beta 3.cafe/t1
act start 1; holds "the other node is told" [ "$(cat "$T/fact-farshore-generation-db@beta")" = 3.cafe/t1:unclear ]
begin "so it asks too, also if it went on alone"
primary farshore_generation=4.cafe; last_was alpha; fact farshore-generation-db 3.cafe/t1:unclear
act start 1; says "not known who was promoted last"; says "gone for good"; act stop 0; ordered ""
begin "and follows the one that was promoted by hand, once that is heard"
primary; last_was alpha; fact farshore-generation-db 2.cafe/t1:unclear; peer_says farshore_role=primary farshore_generation=4.beef
then_daemon demote farshore_in_step=no; act start 0; ordered "demote "; keeps 3.cafe/t1:undecided

begin "a primary that leads is not behind"
primary; last_was alpha; : > "$T/behind-alpha"; act start 0; gone behind-alpha

begin "a demotion whose answer is lost is kept"
primary; last_was alpha; act start 0; echo farshore_answered=no-daemon > "$T/demote.then"; echo 2 > "$T/demote.code"
act demote 1; keeps 3.cafe/t1:demoted
primary; act monitor 8; keeps 3.cafe/t1

begin "a demotion that is answered well and did not happen"
primary; last_was alpha; act start 0; act demote 1; says "is not demoted"; ordered "demote "

begin "a command of the configuration that fails after a demotion marks no copy that has everything"
primary; last_was alpha; act start 0; echo 1 > "$T/demote.code"; echo 0 > "$T/demote.again"; then_daemon demote farshore_in_step=no
act demote 0; gone behind-beta; ordered "demote demote "

begin "a demotion that runs is no closed export"
primary; last_was alpha; act start 0; : > "$T/demote.hangs"; act demote 1; says "not answered in time"; keeps 3.cafe/t1:demoted
rm "$T/demote.hangs"; primary farshore_condition=ending; act monitor 8; keeps 3.cafe/t1:demoted
then_daemon demote farshore_in_step=no; act stop 0; keeps 3.cafe/t1:demoted; there behind-beta

begin "and one of a closed export leaves the operator his answer"
closed; last_was alpha; act start 0; : > "$T/demote.hangs"; act demote 1; keeps 3.cafe/t1:undecided
rm "$T/demote.hangs"; primary farshore_condition=ending farshore_in_step=no; then_daemon demote farshore_in_step=no
act stop 0; keeps 3.cafe/t1:undecided

begin "a monitor beside a demotion marks nobody"
primary; last_was alpha; act start 0; primary farshore_condition=ending farshore_in_step=no farshore_state=logging
act monitor 8; gone behind-beta

for next in stop demote notify; do
    begin "one that ends when no action waits for it marks the other copy: $next"
    primary; last_was alpha; act start 0; : > "$T/demote.hangs"; act demote 1; gone behind-beta
    rm "$T/demote.hangs"; daemon farshore_in_step=no; act $next 0; there behind-beta; ordered "demote "
done

for other in history generation; do
    begin "also where the cluster has not kept it, or not of this history: $other"
    primary; last_was alpha; act start 0; : > "$T/demote.hangs"; generation=3.cafe
    if [ $other = history ]; then : > "$T/farshore-generation-db.read-only"; else generation=4.cafe; fi
    act demote 1; rm "$T/demote.hangs"; daemon farshore_in_step=no farshore_generation=$generation; act monitor 0; there behind-beta
done

begin "and where the mark cannot be set, the next action tries again"
primary; last_was alpha; act start 0; echo 1 > "$T/demote.code"; then_daemon demote farshore_in_step=no
: > "$T/attrd--update.fails"; act demote 1; act stop 1; rm "$T/attrd--update.fails"; act stop 0; there behind-beta; ordered "demote demote "

begin "what an operator demoted is not marked by a monitor"
primary; last_was alpha; act start 0; daemon farshore_in_step=no; act monitor 0; gone behind-beta; act stop 0; gone behind-beta

begin "but where the other copy lacks something of it, it is"
primary; last_was alpha; act start 0; daemon farshore_in_step=no farshore_dirty_bytes=4096; act monitor 0; there behind-beta

begin "a demotion of which the cluster does not say whether it counts marks the other copy"
primary; last_was alpha; act start 0; : > "$T/farshore-primary-db.fails"; echo 1 > "$T/demote.code"
then_daemon demote farshore_in_step=no; act demote 0; there behind-beta

begin "a demotion beside which the group fails is not known to be done"
primary; last_was alpha; act start 0; echo 2 > "$T/demote.code"
then_daemon demote farshore_condition=halted farshore_state=failed farshore_in_step=no farshore_generation=0-00000000
act demote 1; says "is not demoted"; act stop 1; gone behind-beta; ordered "demote "

begin "the last primary says why it is not promoted where an operator has demoted it after a question, and for any other reason"
daemon farshore_in_step=no; last_was alpha; fact farshore-generation-db 3.cafe/t1:unclear; act start 0; score -INFINITY
says "was asked whether its history counts"
rm "$T/log"; daemon farshore_in_step=no farshore_promotable=no; fact farshore-generation-db 3.cafe/t1; act monitor 0; says "what a promotion takes"

begin "the last primary says why it is not promoted"
cut; last_was alpha; fact farshore-generation-db 3.cafe:demoted; act start 0; score -INFINITY; says "does not say that it is a copy"
rm "$T/log"; act monitor 0; gone log

# An export that stays closed for a time after a loss of power

begin "a closed export is waited for, and nobody is marked for it"
attach=true; closed farshore_reason=asks; last_was alpha; echo alpha > "$T/members"; : > "$T/attrd--update.fails"
probe=yes; act monitor 0; probe=no; score 10000; act start 0; act monitor 8; ordered ""
then_daemon sleep farshore_role=primary
act promote 0; says "is waited for: asks"; ordered "attach "; is_last alpha
probe=yes; act monitor 0
echo attached > "$T/devices"; act monitor 8; probe=no; ordered "attach "
attach=false

begin "one that does not open fails the promotion in a sentence"
closed farshore_reason=chooses; last_was alpha; act promote 1; says "still closed: chooses"; ordered ""

begin "the daemon is gone while its export is waited for"
closed; last_was alpha; echo farshore_answered=no-daemon > "$T/sleep.then"; act promote 1; says "not known whether db is still primary"

begin "a primary that served nobody is demoted beside a peer that cannot be marked"
closed; last_was alpha; : > "$T/attrd--update.fails"; echo 1 > "$T/demote.code"; then_daemon demote farshore_in_step=no
act demote 0; ordered "demote demote "
primary farshore_in_step=no farshore_state=logging; act demote 1

# What is known of the copies

begin "beta is no member where beta.example.com is"
echo "alpha beta.example.com" > "$T/members"; daemon; : > "$T/run/farshore-db.started"
act monitor 0; forgets; score -INFINITY

begin "a copy that is not linked beside a member forgets at the second look"
daemon; : > "$T/run/farshore-db.started"; act monitor 0; remembers
cut; act monitor 0; remembers; act notify 0; remembers; act monitor 0; forgets

begin "also where the cluster does not say in between who is a member"
daemon; : > "$T/run/farshore-db.started"; act monitor 0
cut; act monitor 0; rm "$T/members"; act monitor 0; remembers; echo "alpha beta" > "$T/members"; act monitor 0; forgets

begin "and not where the member leaves in between"
daemon; : > "$T/run/farshore-db.started"; act monitor 0
cut; act monitor 0; echo alpha > "$T/members"; act monitor 0; remembers
echo "alpha beta" > "$T/members"; act monitor 0; remembers

begin "what an earlier life of the cluster kept of a copy is old when it starts again"
: > "$T/run/farshore-db.in-step"; cut; last_was beta; act start 0; forgets

begin "a primary with a broken volume, where the copy is in step and where it is not"
primary farshore_broken_volumes=1; last_was alpha; act start 0; score 200
primary farshore_broken_volumes=1 farshore_in_step=no farshore_state=queuing; act monitor 8; score 10000

begin "a primary that cannot mark the other copy"
primary farshore_in_step=no farshore_state=logging; last_was alpha; : > "$T/attrd--update.fails"
act monitor 9
rm "$T/attrd--update.fails"; act monitor 8; there behind-beta
rm "$T/log"; : > "$T/attrd--update.fails"; act monitor 8; gone log
: > "$T/attrd--query.fails"; act monitor 8; says "was set before"; rm "$T"/attrd--*.fails
primary; act monitor 8; gone behind-beta
primary farshore_in_step=no farshore_state=logging; : > "$T/attrd--update.fails"; act monitor 9

begin "and one whose first try fails"
primary farshore_in_step=no farshore_state=logging; last_was alpha; : > "$T/attrd--update.fails-once"
act monitor 8; there behind-beta

begin "an unanswered demotion that was done marks the other copy"
primary; last_was alpha; act monitor 8
echo 2 > "$T/demote.code"; then_daemon demote farshore_in_step=no
act demote 0; there behind-beta

begin "where the property cannot be read"
primary; last_was alpha; act start 0; score 10000; : > "$T/farshore-primary-db.fails"
act monitor 8; score 10000; act notify 0; score 10000; act start 1; ordered ""
daemon; last_was beta; act monitor 0; score -INFINITY; rm "$T/farshore-primary-db.fails"; act monitor 0; score 1000

begin "where it cannot be read whether only an operator promotes the last primary"
daemon farshore_in_step=no; last_was alpha; act start 0; score 100; : > "$T/farshore-generation-db.fails"; act monitor 0; score -INFINITY

# What does not run, or not yet

begin "the group is still starting"
daemon farshore_condition=starting
act stop 1; act demote 1; ordered ""; probe=yes; act monitor 7; probe=no

begin "a copy that is started anew reads its journal back"
daemon; last_was beta; act start 0; daemon farshore_condition=starting farshore_promotable=no
act monitor 0; score -INFINITY; act demote 0; act stop 0; ordered ""
daemon; act start 0; daemon farshore_condition=starting; last_was alpha; act monitor 1; act stop 1

begin "nor is a copy's node fenced whose start or whose daemon hangs, also at a boot and after a stop"
last_was beta
for word in starting hangs; do
    for before in boot stop; do
        rm -rf "$T/run"; mkdir "$T/run"; daemon; [ $before = boot ] || { act start 0; act stop 0; }
        daemon farshore_condition=starting; [ $word = starting ] || echo farshore_answered=error > "$T/status"
        act start 1; act stop 0; act stop 0
    done
done
last_was alpha; act stop 1; primary; act start 0; last_was beta; daemon farshore_condition=starting; act stop 1

begin "a start that stands still is no reason to start again"
daemon farshore_condition=halted farshore_state=paused farshore_in_step=no
act start 0; score -INFINITY; act monitor 0; act demote 0; act stop 0; ordered ""

begin "an older primary whose group has failed"
primary farshore_condition=halted farshore_state=failed farshore_in_step=no; last_was beta
probe=yes; act monitor 7; probe=no; act stop 0; act demote 0; act start 1; ordered ""

begin "the last primary has failed, and served nothing since the boot"
primary farshore_condition=halted farshore_state=failed farshore_in_step=no; last_was alpha
probe=yes; act monitor 7; probe=no; act start 1; act stop 0; ordered ""

begin "the last primary fails while it serves"
primary; last_was alpha; act monitor 8
primary farshore_condition=halted farshore_state=failed farshore_in_step=no; echo 2 > "$T/demote.code"
act monitor 9; act demote 1; act stop 1

begin "and where the record of its role cannot be read"
primary; last_was alpha; act monitor 8
daemon farshore_condition=halted farshore_state=failed farshore_in_step=no farshore_generation=0-00000000
act monitor 9; act demote 1; act stop 1; gone behind-beta; ordered ""

begin "the daemon of the last primary is gone"
primary; last_was alpha; act monitor 8; no_daemon
act monitor 9; act demote 1; act stop 1
last_was beta; act monitor 7; act stop 0

begin "a probe finds the primary whose daemon is started anew"
primary; last_was alpha; act monitor 8; no_daemon; then_daemon sleep farshore_role=primary
probe=yes; act monitor 8; no_daemon; act monitor 7; probe=no

begin "the daemon of a copy hangs, and that of a primary"
daemon; last_was beta; act start 0; echo farshore_answered=error > "$T/status"; act monitor 1; act stop 0; act start 1; act stop 0
last_was alpha; act stop 1; rm "$T/status"; last_was beta; act stop 0; echo farshore_answered=error > "$T/status"; act stop 0
primary; last_was alpha; act start 0; echo farshore_answered=error > "$T/status"; rm "$T/clock"
limit=30000; act stop 1; limit=; says "may be primary"; holds "it ends before its time" [ "$(cat "$T/clock")" -le 30 ]

begin "a daemon that does not answer a question takes no more time than the action has"
daemon; last_was beta; : > "$T/status.hangs"; limit=40000; act start 1; limit=
says "does not say how db is"; holds "it ends before its time" [ "$(cat "$T/clock")" -le 40 ]

begin "words of another version are no answer"
daemon farshore_condition=; act start 1; act stop 1

begin "nothing can be kept for the next action"
primary farshore_in_step=no farshore_state=logging; last_was alpha; rmdir "$T/run"; act monitor 8; ordered ""; there behind-beta
act start 1; says "cannot be made"; act stop 0; says "stays primary here"; ordered ""
rm "$T/log"; probe=yes; act monitor 1; probe=no; says "cannot be made"; last_was beta; fact farshore-generation-db 3.cafe/t1
then_daemon demote; act start 1; ordered ""; daemon; act start 1; act promote 1; ordered ""; is_last beta; mkdir "$T/run"

begin "the daemon of a copy, and of a primary that was demoted, is gone"
primary; last_was alpha; act monitor 8; then_daemon demote; act demote 0; no_daemon
act monitor 7; act demote 7; act stop 0

begin "no daemon since the boot"
last_was alpha; no_daemon; probe=yes; act monitor 7; probe=no; act stop 0; act start 1; says "systemctl enable --now farshore"

begin "a group that the daemon does not have"
echo farshore_answered=no-group > "$T/status"
probe=yes; act monitor 7; probe=no; act monitor 7; act start 2; act stop 0

# Devices

begin "all volumes, or another helper is wanted"
attach=true; primary; last_was alpha
echo attached > "$T/devices"; act monitor 8; ordered ""
for word in broken none unknown; do echo $word > "$T/devices"; act monitor 9; done
ordered "attach attach attach "

begin "an attachment that is not answered in time goes on nowhere"
primary; last_was alpha; : > "$T/attach.hangs"; act monitor 9; says "'farshore attach db' is not answered in time"
holds "no word of the daemon" sh -c "! grep -q 'goes on' '$T/log'"

begin "a probe finds a primary whose device has lost its helper, or of whose devices nothing is known"
primary; last_was alpha; act monitor 9; probe=yes; act monitor 0
for word in broken unknown; do echo $word > "$T/devices"; act monitor 8; done
probe=no
attach=false

[ $failed = 0 ] && echo "the agent's cases hold"
exit $((failed > 0))
