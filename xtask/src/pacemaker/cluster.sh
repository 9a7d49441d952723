# Two nodes of a real Pacemaker cluster, and what happens to a group of Farshore in it. Runs in namespaces of its own: whatever is left ends
# with them. Each check prints a line that xtask counts.
set -u
system=$1 work=$2 farshore=$3 agent=$4 parts=$5

check() { # what it shows, and the command that shows it
    what=$1; shift
    if said=$("$@" 2>&1); then
        echo "CHECK ok: $what"
    else
        echo "CHECK FAILED: $what"
        echo "$said" | tail -20 | sed 's/^/    /'
        show_state | sed 's/^/    /'
    fi
}
now() { date +%s; }
until_true() { # seconds, and the command
    end=$(($(now) + $1)); shift
    while ! "$@" > /dev/null 2>&1; do
        [ "$(now)" -lt $end ] || { echo "not in time: $*"; "$@"; return 1; }
        sleep 0.3
    done
}
say() { echo "[$(( $(now) - began )) s] $*"; }
began=$(now)

# The nodes

root() { echo "$work/$1/root"; }
make_node() {
    mkdir -p "$work/$1/upper" "$work/$1/work" "$work/$1/root"
    mount -t overlay overlay -o "lowerdir=$system,upperdir=$work/$1/upper,workdir=$work/$1/work" "$(root "$1")"
    r=$(root "$1")
    echo "$1" > "$r/etc/hostname"
    printf '127.0.0.1 localhost\n10.77.0.1 alpha\n10.77.0.2 beta\n' > "$r/etc/hosts"
    mkdir -p "$r/etc/farshore" "$r/srv" "$r/var/lib/farshore" "$r/fence" "$r/usr/lib/ocf/resource.d/farshore"
    cp "$farshore" "$r/usr/bin/farshore"
    cp "$agent" "$r/usr/lib/ocf/resource.d/farshore/farshore"
    cp "$parts/fence_trial" "$r/usr/sbin/fence_trial"
    cp "$parts/node.sh" "$r/node.sh"
    chmod 755 "$r/usr/lib/ocf/resource.d/farshore/farshore" "$r/usr/sbin/fence_trial" "$r/node.sh"
    cp "$work/corosync.conf" "$r/etc/corosync/corosync.conf"
    printf 'PCMK_logfile=/var/log/pacemaker/pacemaker.log\n' > "$r/etc/default/pacemaker"
    truncate -s 64M "$r/srv/data.img"
    mount --bind "$work/fence" "$r/fence"
}
number() { [ "$1" = alpha ] && echo 1 || echo 2; }
boot() {
    # An agent that does not see its node dead asks again, and that would kill this boot.
    if [ -e "$work/fence/$1.dead" ]; then until_true 5 test -e "$work/fence/$1.seen"; fi
    rm -f "$work/fence/$1.asked" "$work/fence/$1.dead" "$work/fence/$1.seen"
    n=$(number "$1")
    unshare --pid --net --uts --ipc --mount --fork --kill-child chroot "$(root "$1")" /node.sh "$1" > "$work/$1/console" 2>&1 &
    eval "outer_$1=$!"
    for try in $(seq 100); do
        inner=$(pgrep -P $! -x node.sh) && break
        sleep 0.05
    done
    eval "inner_$1=$inner"
    for net in 0 1; do
        ip link delete "v$1$net" 2> /dev/null
        ip link add "v$1$net" type veth peer name "e$net" address "02:00:00:00:0$net:0$n" netns "$inner"
        ip link set "v$1$net" master "br$net" up
        nsenter -t "$inner" -n ip address add "10.77.$net.$n/24" dev "e$net"
        nsenter -t "$inner" -n ip link set "e$net" up
    done
    until_true 20 farshore_answers "$1"
}
pid_of() { eval "echo \$inner_$1"; }
on() { # a node, and a command there
    target=$(pid_of "$1"); shift
    nsenter -t "$target" -m -u -i -n -p -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root OCF_ROOT=/usr/lib/ocf "$@"
}
farshore_answers() { on "$1" farshore status > /dev/null 2>&1; [ $? -le 1 ]; }
kill_node() { eval "kill -9 \$inner_$1"; eval "wait \$outer_$1" 2> /dev/null; }
join() { on "$1" touch /run/cluster; }

# The other end of the fence agent: kills whom it is asked to kill, as power would.
fencer() {
    while :; do
        for node in alpha beta; do
            if [ -e "$work/fence/$node.asked" ] && [ ! -e "$work/fence/$node.dead" ]; then
                inner=$(cat "$work/$node/pid")
                kill -9 "$inner" 2> /dev/null
                while [ -d "/proc/$inner" ]; do sleep 0.05; done
                : > "$work/fence/$node.dead"
            fi
        done
        sleep 0.1
    done
}
start_node() { boot "$1"; pid_of "$1" > "$work/$1/pid"; }

# What the cluster says

promoted() { on "$1" crm_resource --locate -r db-clone 2> /dev/null | sed -n 's/.*running on: \([a-z]*\) *\(Promoted\|Master\).*/\1/p'; }
is_promoted() { [ "$(promoted "$1")" = "$2" ]; } # asked on, node
nobody_promoted() { on "$1" crm_resource --locate -r db-clone > /dev/null 2>&1 && [ -z "$(promoted "$1")" ]; }
user_runs_on() { on "$1" crm_resource --locate -r user 2> /dev/null | grep -q "running on: $2"; }
is_member() { on "$1" crm_node --partition | grep -qw "$2"; }
score_is() { # asked on, node, score or none
    found=$(on "$1" crm_attribute -N "$2" -n master-db -l reboot -G -q 2> /dev/null)
    [ "${found:-none}" = "$3" ] || { echo "score of $2: ${found:-none}, not $3"; return 1; }
}
behind() { on "$1" attrd_updater -n farshore-behind-db -Q -N "$2" 2> /dev/null | grep -q 'value="1"'; }
not_behind() { ! behind "$@"; }
role() { on "$1" sh -c 'farshore status db --format shell --local' 2> /dev/null | sed -n "s/^farshore_role='\(.*\)'/\1/p"; }
role_is() { [ "$(role "$1")" = "$2" ]; }
in_step() { on "$1" farshore status db --format shell --local 2> /dev/null | grep -q '^farshore_in_step=yes'; }
replicates() { on "$1" farshore wait db --for replicating --timeout 30s; }
settled() { on "$1" crm_resource --wait --timeout 60 > /dev/null 2>&1; }
is_last() { [ "$(on "$1" crm_attribute --type crm_config --name farshore-primary-db -G -q 2> /dev/null)" = "$2" ]; }
show_state() {
    for node in alpha beta; do
        [ -d "/proc/$(pid_of $node)" ] || { echo "$node is down"; continue; }
        on $node crm_mon -1 -A -f -r 2>&1 | grep -v '^$' | head -60
        on $node farshore status db 2>&1 | head -12
    done
}
fail_counts() { on "$1" crm_mon -1 -f 2> /dev/null | grep -q 'fail-count'; }
no_fail_counts() { ! fail_counts "$1"; }
clean_up() { on "$1" crm_resource --cleanup > /dev/null 2>&1; settled "$1"; }

# Data

export_of() { echo "nbd+unix:///db/data?socket=/var/lib/farshore/nbd.sock"; }
write() { # on node, seed: 8 MiB that only this seed has
    on "$1" sh -c "seq -f 'seed $2 line %012.0f' 400000 | head -c 8388608 > /srv/in; nbdcopy --flush /srv/in '$(export_of)'"
}
reads() { # on node, seed
    on "$1" sh -c "seq -f 'seed $2 line %012.0f' 400000 | head -c 8388608 > /srv/want; nbdcopy '$(export_of)' /srv/out && cmp -n 8388608 /srv/want /srv/out"
}

. "$parts/scenario.sh"
echo "CLUSTER ENDS after $(( $(now) - began )) s"
