# As much of resource-agents' functions as the agent uses without a cluster.
OCF_SUCCESS=0 OCF_ERR_GENERIC=1 OCF_ERR_ARGS=2 OCF_ERR_UNIMPLEMENTED=3 OCF_ERR_INSTALLED=5 OCF_ERR_CONFIGURED=6 OCF_NOT_RUNNING=7
ocf_log() { echo "$*"; }
ocf_exit_reason() { echo "reason: $*"; }
ocf_is_true() { case $1 in yes|true|1|on) return 0 ;; esac; return 1; }
ocf_is_probe() { return 1; }
