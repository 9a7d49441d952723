//! The OCF agent beside stubs of the daemon and of the cluster: `packaging/ocf/tests/agent.sh`. The real cluster is
//! `cargo xtask pacemaker`.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_agent_beside_a_daemon_and_a_cluster_that_fail() {
    let ocf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/ocf");
    let work = std::env::temp_dir().join(format!("farshore-agent-{}", std::process::id()));
    fs::create_dir_all(&work).expect("a folder");
    let output = Command::new("sh").arg(ocf.join("tests/agent.sh")).arg(ocf.join("farshore")).arg(&work).output();
    let output = output.expect("a shell");
    fs::remove_dir_all(&work).expect("nothing is left in it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
