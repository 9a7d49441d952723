#!/bin/sh
# Runs inside of a booted system: two daemons of a pair, real systemd, and what hangs on the target of a role. Each check prints a line.
exec >> /role.log 2>&1
check() {
    what=$1; shift
    if said=$("$@" 2>&1); then echo "CHECK ok: $what"; else
        echo "CHECK FAILED: $what"; echo "$said" | sed 's/^/    /'
        systemctl --no-pager list-units 'farshore*' 'user*' | sed 's/^/    /'
        journalctl --no-pager -n 30 -u 'farshore*' -u 'user*' | sed 's/^/    /'
    fi
}
until_true() {
    end=$(($(date +%s) + $1)); shift
    while ! "$@" > /dev/null 2>&1; do [ "$(date +%s)" -lt $end ] || { "$@"; return 1; }; sleep 0.2; done
}
is() { [ "$(systemctl is-active "$1")" = "$2" ]; }
lines() { [ "$(tr '\n' ' ' < /user.log)" = "$* " ] || { cat /user.log; return 1; }; }

case $(cat /boots 2> /dev/null) in
'')
    echo once > /boots
    hostname alpha
    export FARSHORE_CONFIG=/etc/farshore/farshore.toml
    check "the peer's daemon runs" systemctl start peer
    check "the daemon runs" systemctl enable --now farshore
    until_true 30 farshore sync db --full
    check "the pair is in step" farshore wait db --for replicating --timeout 30s
    check "nothing is started by an installation" is farshore-primary@db.target inactive
    systemctl enable --quiet user.service
    check "the follower is enabled" systemctl enable --now farshore-primary@db.service
    check "on a primary the target comes up" until_true 20 is farshore-primary@db.target active
    check "and what hangs on it" until_true 20 is user.service active

    check "the daemon is restarted" systemctl restart farshore
    sleep 2
    check "what hangs on the target ran on" lines "start"
    main=$(systemctl show --property MainPID --value farshore-primary@db.service)
    kill -9 "$main"; sleep 4
    check "the follower is killed: it comes back" is farshore-primary@db.service active
    check "and what hangs on the target ran on" lines "start"

    check "a demotion" farshore demote db
    check "what hangs on the target was stopped while this node was primary" lines "start stop:primary"
    check "the target is down" is farshore-primary@db.target inactive
    check "the other node takes over" farshore promote db --node beta
    sleep 1
    check "nothing starts on a secondary" lines "start stop:primary"
    check "and back" farshore demote db --node beta
    check "promoted" farshore promote db
    check "what hangs on the target starts" until_true 20 lines "start stop:primary start"

    # A client that is no unit holds the export: refused, and all runs on.
    (sleep 30 | nbdcopy - "nbd+unix:///db/data?socket=/var/lib/farshore/nbd.sock") & holder=$!
    sleep 1
    check "a refused demotion" sh -c '! farshore demote db'
    check "what hangs on the target runs again" until_true 20 lines "start stop:primary start stop:primary start"
    pkill nbdcopy; kill $holder; sleep 1

    # Ctrl-C while what hangs on the target takes its time to stop.
    : > /user.log
    touch /slow
    check "a demotion that is cut short" sh -c '! timeout --signal=INT 2 farshore demote db'
    rm /slow
    check "what hangs on the target runs again after that" until_true 30 lines "stop:primary start"
    check "the target is up" is farshore-primary@db.target active
    check "and this node is primary" sh -c "farshore status db --format shell | grep -q \"^farshore_role='primary'\""

    # As after a loss of power, and the peer is away: the export stays closed for a time.
    systemctl stop farshore-primary@db.service peer
    systemctl stop farshore-primary@db.target
    : > /user.log
    printf '[Service]\nEnvironment=FARSHORE_BOOT_ID=7\n' > /etc/systemd/system/farshore.service.d/boot.conf
    systemctl daemon-reload
    systemctl kill --signal=KILL farshore
    closed() { farshore status db --format shell | grep -q "^farshore_protection='none'"; }
    check "the export is closed" until_true 20 closed
    systemctl start farshore-primary@db.service
    sleep 3
    check "nothing starts while the export is closed" test ! -s /user.log
    farshore set db start_alone=serve
    check "what hangs on the target starts when the export opens" until_true 20 lines "start"
    farshore set db start_alone=default
    rm /etc/systemd/system/farshore.service.d/boot.conf
    systemctl daemon-reload
    systemctl start peer
    in_step() { farshore wait db --for replicating --timeout 5s || { farshore sync db; false; }; }
    check "the pair is in step again" until_true 60 in_step

    # It starts no daemon that was stopped: no unit does.
    systemctl start --no-block farshore-attach@db-data.service
    systemctl stop farshore
    sleep 6
    check "a daemon that was stopped stays stopped" is farshore inactive
    systemctl stop farshore-attach@db-data.service
    systemctl start farshore

    check "an operator's stop" systemctl stop farshore-primary@db.target
    sleep 1
    check "is left alone" is farshore-primary@db.target inactive
    : > /user.log
    echo "BOOT ENDS"
    sync
    systemctl poweroff ;;
once)
    echo twice > /boots
    check "after a boot the target comes up by itself" until_true 40 is farshore-primary@db.target active
    check "and what hangs on it" until_true 20 lines "start"
    # The log goes on after this in a file of the service's own.
    echo "BOOT ENDS"
    systemctl poweroff ;;
esac
