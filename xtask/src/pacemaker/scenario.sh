# The scenario; cluster.sh reads it.

mkdir -p "$work/fence"
ip link set lo up
for net in 0 1; do ip link add "br$net" type bridge; ip link set "br$net" up; done
cat > "$work/corosync.conf" <<END
totem {
    version: 2
    cluster_name: trial
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    token: 2000
}
nodelist {
    node {
        name: alpha
        nodeid: 1
        ring0_addr: 10.77.0.1
    }
    node {
        name: beta
        nodeid: 2
        ring0_addr: 10.77.0.2
    }
}
quorum {
    provider: corosync_votequorum
    two_node: 1
    wait_for_all: 0
}
logging {
    to_stderr: yes
    to_syslog: no
    timestamp: on
}
END
for node in alpha beta; do make_node $node; done
r=$(root alpha)
cat > "$r/etc/farshore/farshore.toml" <<END
cluster = "trial"
[tls]
directory = "/etc/farshore/tls"
[nodes.alpha]
address = "10.77.1.1:7337"
state = "/var/lib/farshore"
[nodes.beta]
address = "10.77.1.2:7337"
state = "/var/lib/farshore"
[groups.db]
primary = "alpha"
secondary = "beta"
mode = "sync"
start_alone = "wait 30s"
journal = "128MiB"
queue.disk = 0
history = "96MiB"
[groups.db.volumes.data]
alpha = "/srv/data.img"
beta = "/srv/data.img"
END
chroot "$r" sh -c 'farshore cert init && farshore cert node alpha && farshore cert node beta' > "$work/cert.log" 2>&1
cp -r "$r/etc/farshore/." "$(root beta)/etc/farshore/"
for node in alpha beta; do start_node $node; done
fencer & 
until_true 30 on alpha farshore sync db --full
check "the pair is in step before there is a cluster" replicates alpha

for node in alpha beta; do join $node; done
both_online() { on alpha crm_mon -1 2> /dev/null | grep -q 'Online: \[ alpha beta \]'; }
check "both nodes form a cluster" until_true 60 both_online
say "the cluster stands"

properties='<crm_config><cluster_property_set id="p">
<nvpair id="p1" name="stonith-enabled" value="true"/>
<nvpair id="p2" name="stonith-timeout" value="40s"/>
<nvpair id="p3" name="cluster-recheck-interval" value="60s"/>
<nvpair id="p4" name="dc-deadtime" value="5s"/>
</cluster_property_set></crm_config>'
on alpha cibadmin --modify --xml-text "$properties"

# What a tester of agents says of the agent, with a live daemon and cluster.
tester() {
    version=$(on alpha cibadmin --query | sed -n 's/.*crm_feature_set="\([0-9.]*\)".*/\1/p' | head -1)
    on alpha env HA_RSCTMP=/run/resource-agents OCF_RESOURCE_INSTANCE=db ocf-tester -v -n db -o group=db -o "crm_feature_set=$version" \
        /usr/lib/ocf/resource.d/farshore/farshore
}
check "ocf-tester finds nothing" tester
wrong() { # code, and what is set
    code=$1; shift
    on alpha env "$@" /usr/lib/ocf/resource.d/farshore/farshore validate-all
    [ $? = "$code" ]
}
check "no program: not installed" wrong 5 OCF_RESKEY_group=db OCF_RESKEY_binary=/no/program
check "no group named: not configured" wrong 6 OCF_RESKEY_group=
check "two primaries: not configured" wrong 6 OCF_RESKEY_group=db OCF_RESKEY_CRM_meta_promoted_max=2
unknown() { on alpha env OCF_RESKEY_group=other /usr/lib/ocf/resource.d/farshore/farshore "$1"; [ $? = "$2" ]; }
check "a group that the daemon does not have: not running here" unknown monitor 7
check "and its start fails on this node alone" unknown start 2
on alpha farshore promote db --force > /dev/null 2>&1
on alpha crm_attribute --type crm_config --name farshore-primary-db --delete > /dev/null 2>&1
until_true 30 in_step alpha

resources='<resources>
<clone id="db-clone"><meta_attributes id="db-clone-m">
<nvpair id="db-clone-m1" name="promotable" value="true"/><nvpair id="db-clone-m2" name="promoted-max" value="1"/>
<nvpair id="db-clone-m3" name="clone-max" value="2"/><nvpair id="db-clone-m4" name="notify" value="true"/>
</meta_attributes>
<primitive id="db" class="ocf" provider="farshore" type="farshore">
<instance_attributes id="db-i"><nvpair id="db-i1" name="group" value="db"/><nvpair id="db-i2" name="allow_force" value="false"/></instance_attributes>
<operations>
<op id="db-1" name="monitor" interval="5s" timeout="40s" role="Promoted"/><op id="db-2" name="monitor" interval="6s" timeout="40s" role="Unpromoted"/>
<op id="db-3" name="start" interval="0" timeout="60s"/><op id="db-4" name="stop" interval="0" timeout="60s"/>
<op id="db-5" name="promote" interval="0" timeout="60s"/><op id="db-6" name="demote" interval="0" timeout="60s"/>
</operations></primitive></clone>
<primitive id="user" class="ocf" provider="pacemaker" type="Dummy"/>
<primitive id="fence-alpha" class="stonith" type="fence_trial"><instance_attributes id="fa"><nvpair id="fa1" name="pcmk_host_list" value="alpha"/></instance_attributes></primitive>
<primitive id="fence-beta" class="stonith" type="fence_trial"><instance_attributes id="fb"><nvpair id="fb1" name="pcmk_host_list" value="beta"/></instance_attributes></primitive>
</resources>'
constraints='<constraints>
<rsc_colocation id="c1" rsc="user" rsc-role="Started" with-rsc="db-clone" with-rsc-role="Promoted" score="INFINITY"/>
<rsc_order id="c2" first="db-clone" first-action="promote" then="user" then-action="start"/>
<rsc_location id="c3" rsc="fence-alpha" node="alpha" score="-INFINITY"/>
<rsc_location id="c4" rsc="fence-beta" node="beta" score="-INFINITY"/>
</constraints>'
on alpha cibadmin --modify --xml-text "$resources"
on alpha cibadmin --modify --xml-text "$constraints"
check "the primary is adopted" until_true 60 is_promoted alpha alpha
check "what is colocated runs beside it" until_true 30 user_runs_on alpha alpha
check "a primary has the best score" until_true 20 score_is alpha alpha 10000
check "a copy in step has the next" until_true 20 score_is alpha beta 1000
check "the cluster knows who was promoted" until_true 20 is_last alpha alpha
say "adopted"

# Moved, and back by a standby.
write alpha 1
on alpha crm_resource --move --promoted -r db-clone -N beta > /dev/null 2>&1
check "the role moves" until_true 60 is_promoted alpha beta
check "what is colocated follows" until_true 30 user_runs_on alpha beta
check "the other node has every byte" until_true 20 reads beta 1
on alpha crm_resource --clear -r db-clone > /dev/null 2>&1
until_true 30 in_step beta
check "the old primary follows" until_true 30 score_is beta alpha 1000
on alpha crm_attribute -N beta -n standby -l forever -v on
check "a standby of the primary's node moves the role" until_true 60 is_promoted alpha alpha
on alpha crm_attribute -N beta -n standby -l forever -v off
settled alpha
check "the node comes back as a copy" until_true 40 score_is alpha beta 1000
check "no operation failed until here" no_fail_counts alpha
say "moved"

# The whole cluster stops the resource: both nodes are demoted, and the last primary takes that back.
on alpha crm_resource -r db-clone --meta --set-parameter target-role --parameter-value Stopped > /dev/null 2>&1
check "a stop of the resource leaves no primary" until_true 60 role_is alpha secondary
settled alpha
on alpha crm_resource -r db-clone --meta --delete-parameter target-role > /dev/null 2>&1
check "the demotion is taken back" until_true 60 is_promoted alpha alpha
check "with what was written" until_true 20 reads alpha 1
check "the copy has its score after that" until_true 40 score_is alpha beta 1000
check "no operation failed in this" no_fail_counts alpha
say "stopped and started"

# The daemon is killed: systemd would start it again, and the cluster has nothing to do.
write alpha 2
for node in alpha beta; do
    on $node pkill -9 -x farshore
    sleep 8
    check "a killed daemon of $node is waited for" until_true 30 is_promoted alpha alpha
done
check "no operation failed, nothing moved" no_fail_counts alpha
until_true 30 in_step alpha
say "daemons killed"

# The link between the daemons is cut, the cluster's is not.
ip link set valpha1 down
check "a cut link: the copy is known to be behind" until_true 60 behind alpha beta
check "a cut link: the copy must not be promoted" until_true 30 score_is alpha beta -INFINITY
check "a cut link: the primary stays" is_promoted alpha alpha
write alpha 3
on alpha crm_resource --move --promoted -r db-clone -N beta > /dev/null 2>&1
sleep 10
check "a move to the copy that is behind is not done" role_is beta secondary
check "and takes nothing from the primary" role_is alpha primary
on alpha crm_resource --clear -r db-clone > /dev/null 2>&1
check "no operation failed" no_fail_counts alpha
check "nothing that was written in the cut is gone" reads alpha 3
ip link set valpha1 up
check "the link is back: the copy catches up" until_true 60 in_step alpha
check "the copy has its score again" until_true 40 score_is alpha beta 1000
check "the copy is not behind any more" until_true 20 not_behind alpha beta
clean_up alpha
say "link cut"

# The primary's node is lost. Without allow_force nobody gives anything up.
write alpha 4
kill_node alpha
check "a lost node is fenced" until_true 60 test -e "$work/fence/alpha.dead"
sleep 8
check "without allow_force the copy is not promoted" nobody_promoted beta
check "without allow_force the copy stays secondary" role_is beta secondary
start_node alpha; join alpha
check "the primary that returns is promoted" until_true 90 is_promoted beta alpha
check "and what is colocated runs" until_true 30 user_runs_on beta alpha
check "and is in step again" until_true 60 in_step alpha
check "the copy has its score" until_true 40 score_is beta beta 1000
say "node lost, without force"

# The same, and the link between the daemons is cut when the node returns: its export stays closed until `start_alone` is over.
clean_up beta
kill_node alpha
until_true 60 test -e "$work/fence/alpha.dead"
ip link set br1 down
start_node alpha; join alpha
check "a primary whose export is closed is promoted when that opens" until_true 120 is_promoted beta alpha
check "and it serves then" until_true 60 reads alpha 4
check "and what is colocated runs" until_true 30 user_runs_on beta alpha
check "no operation failed in this" no_fail_counts beta
ip link set br1 up
# What the copy confirmed before may be missing here, and this node has served since: that is asked about.
caught_up() { in_step alpha || { on alpha farshore sync db; in_step alpha; }; }
check "the link is back: the copy catches up" until_true 90 caught_up
check "the copy has its score again" until_true 40 score_is beta beta 1000
say "closed export"

# With allow_force the copy that was in step takes over.
on beta crm_resource -r db --set-parameter allow_force --parameter-value true > /dev/null 2>&1
settled beta
until_true 40 is_promoted beta alpha
until_true 40 in_step alpha
until_true 40 score_is beta beta 1000
write alpha 5
lost=$(now)
kill_node alpha
check "with allow_force the copy is promoted" until_true 90 is_promoted beta beta
say "promoted $(( $(now) - lost )) s after the loss of the node"
check "what is colocated runs there" until_true 30 user_runs_on beta beta
check "mode sync lost nothing" until_true 20 reads beta 5
write beta 6
start_node alpha; join alpha
check "the old primary comes back as secondary" until_true 90 role_is alpha secondary
check "the new primary stays" until_true 30 is_promoted beta beta
check "the old primary must not be promoted" until_true 30 score_is beta alpha -INFINITY
until_true 30 on beta farshore sync db --full --wait
check "after a full sync it has one" until_true 60 score_is beta alpha 1000
clean_up beta
check "the new primary serves its writes" reads beta 6
say "node lost, with force"

# A demotion that cannot be: a client outside of the cluster holds the export.
on beta sh -c "sleep 300 | nbdcopy - '$(export_of)'" > /dev/null 2>&1 &
sleep 2
check "the client is there" sh -c ": $(on beta farshore status db --format shell | grep clients)"
rm -f "$work/fence/beta.asked" "$work/fence/beta.dead" "$work/fence/beta.seen"
on beta crm_resource --move --promoted -r db-clone -N alpha > /dev/null 2>&1
check "a demotion that is refused ends in fencing" until_true 120 test -e "$work/fence/beta.dead"
check "and the copy in step takes over" until_true 60 is_promoted alpha alpha
check "with what was written" until_true 20 reads alpha 6
on alpha crm_resource --clear -r db-clone > /dev/null 2>&1
start_node beta; join beta
check "the fenced node comes back as secondary" until_true 90 role_is beta secondary
until_true 30 on alpha farshore sync db --full --wait
until_true 60 score_is alpha beta 1000
clean_up alpha
say "refused demotion"

# Both nodes lose their power.
kill_node alpha; kill_node beta
start_node beta; start_node alpha; join beta; join alpha
check "after a power failure of both the last primary is promoted" until_true 120 is_promoted alpha alpha
check "and the other one follows" until_true 60 score_is alpha beta 1000
check "with what was written" until_true 20 reads alpha 6
say "power failure"

# The daemon of the primary is stopped beneath the cluster, and stays away: it is primary on record, so only fencing makes sure.
write alpha 7
rm -f "$work/fence/alpha.asked" "$work/fence/alpha.dead" "$work/fence/alpha.seen"
until_true 30 in_step alpha
lost=$(now)
on alpha touch /run/no-daemon
on alpha pkill -x farshore
check "a primary's daemon that stays away ends in fencing" until_true 150 test -e "$work/fence/alpha.dead"
say "fenced $(( $(now) - lost )) s after the stop of the daemon"
# The copy was not linked beside a member for longer than two monitors: it does not count as in step.
sleep 8
check "the copy that lost its link long before is not promoted" nobody_promoted beta
start_node alpha; join alpha
check "the primary that comes back is promoted" until_true 90 is_promoted beta alpha
check "with what was written before the daemon was stopped" until_true 20 reads alpha 7
say "daemon stopped"

# There is no cluster, and an operator fails over by hand. Then the cluster starts, and was not told.
until_true 60 in_step alpha
kill_node alpha; kill_node beta
start_node beta; start_node alpha
until_true 60 in_step alpha
on alpha touch /run/no-daemon
on alpha pkill -x farshore
daemon_gone() { ! on "$1" pgrep -x farshore; }
until_true 30 daemon_gone alpha
on beta farshore promote db --force > /dev/null 2>&1
write beta 8
on alpha rm /run/no-daemon
until_true 20 farshore_answers alpha
join beta; join alpha
check "the cluster refuses what it was not told of" until_true 90 fail_counts alpha
check "the older primary is demoted" until_true 60 role_is alpha secondary
sleep 8
check "nobody is promoted" nobody_promoted alpha
check "the node that was promoted by hand stays primary" role_is beta primary
check "with what was written there" reads beta 8
on beta crm_attribute --type crm_config --name farshore-primary-db --update beta
clean_up beta
check "told of it, the cluster takes this node up as promoted" until_true 90 is_promoted beta beta
check "and what is colocated runs" until_true 30 user_runs_on beta beta
check "with what was written there" reads beta 8
check "the older primary stays a copy" role_is alpha secondary
say "failed over by hand"

# The same, and the primary had gone on alone before it was lost: both histories have the same number. The lost node is not there.
on beta farshore sync db --full --wait > /dev/null 2>&1
until_true 60 in_step beta
ip link set br1 down
check "a cut link: the primary goes on alone" until_true 60 behind beta alpha
write beta 9
# A monitor keeps the history in which it does.
sleep 8
kill_node alpha; kill_node beta
start_node alpha
on alpha farshore promote db --force > /dev/null 2>&1
write alpha 10
join alpha
check "the cluster refuses a failover by hand to the same number" until_true 120 fail_counts alpha
check "and leaves the node primary" role_is alpha primary
check "with what was written there" reads alpha 10
on alpha crm_attribute --type crm_config --name farshore-primary-db --update alpha
clean_up alpha
check "told of it, the cluster takes this node up too" until_true 90 is_promoted alpha alpha
ip link set br1 up
start_node beta; join beta
check "the primary that was lost is known to be replaced, and demoted" until_true 120 role_is beta secondary
check "the node that was promoted by hand stays" until_true 30 is_promoted alpha alpha
check "with what was written there" reads alpha 10
say "failed over by hand after a cut link"
