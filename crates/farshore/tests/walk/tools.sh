#!/bin/bash
# What a host of a walk has in the place of programs that need another machine or a service manager; which one, says its name.
folder=$(cat /run/walk/folder)
home=$folder/$(hostname)
daemon=/run/walk/daemon journal=$home/journal

lives() { [ -f $daemon ] && kill -0 "$(cat $daemon)" 2> /dev/null; }

# What the unit and its drop-ins say last.
setting() {
    local units=/etc/systemd/system
    cat /run/walk/unit $units/farshore.service $units/farshore.service.d/*.conf 2> /dev/null | sed -n "s/^$1=//p" | grep . | tail -n 1
}

start() {
    lives && return
    mkdir -p -m "$(setting StateDirectoryMode)" /var/lib/farshore
    mkdir -p -m "$(setting ConfigurationDirectoryMode)" /etc/farshore
    rm -f "$home/ready"
    # No shell in between: its number is the daemon's.
    (umask "$(setting UMask)" && NOTIFY_SOCKET=$home/notify exec setsid $(setting ExecStart)) < /dev/null > /dev/null 2>> $journal &
    echo $! > $daemon
    # Whoever walks listens at the socket, and makes this file at READY=1.
    for try in $(seq 900); do
        [ -f "$home/ready" ] && return
        lives || break
        sleep 0.05
    done
    echo "Job for farshore.service failed; see journalctl -u farshore" >&2
    return 1
}

stop() {
    lives || return 0
    kill "$(cat $daemon)"
    for try in $(seq 300); do lives || return 0; sleep 0.1; done
    kill -9 "$(cat $daemon)"
}

systemctl() {
    local verb=$1 words=() word now=
    shift
    for word; do case $word in --now) now=1 ;; -*) ;; *) words+=("${word%.service}") ;; esac; done
    case "$verb ${words[*]}" in
    "daemon-reload ") ;;
    "cat farshore") cat /run/walk/unit ;;
    "start farshore") start ;;
    "stop farshore") stop ;;
    "restart farshore") stop && start ;;
    "enable farshore") [ -z "$now" ] || start ;;
    "disable farshore") [ -z "$now" ] || stop ;;
    "show "*farshore) lives && cat $daemon || echo 0 ;;
    "is-active farshore") lives ;;
    "list-units farshore*") lives && echo farshore.service || true ;;
    # A machine that is lost, or a daemon that is killed.
    "kill farshore") kill -9 "$(cat $daemon)" && while lives; do sleep 0.05; done ;;
    *)
        echo "no service manager here knows: systemctl $verb ${words[*]}" >&2
        return 1
        ;;
    esac
}

journalctl() { cat $journal; }

ssh() {
    local host=$1
    shift
    nsenter --target "$(cat "$folder/$host/pid")" --mount --net --uts -- env -C "$folder/$host/home" HOME="$folder/$host/home" "$@"
}

# [-p] FILE ... HOST:FOLDER/
scp() {
    local to=${*: -1} file
    for file in "${@:1:$#-1}"; do
        [ "$file" = -p ] || tar -C "$(dirname "$file")" -cp "$(basename "$file")" | ssh "${to%%:*}" tar -C "${to#*:}" -xp || return
    done
}

"${0##*/}" "$@"
