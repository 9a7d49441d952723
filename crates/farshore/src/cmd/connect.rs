//! `connect --dry-run`: what a connection of the nodes of groups comes to, before anything is done.

use toolkit::screen::clean;
use units::exact::{show_rate, show_seconds, show_size};

use super::answers::Answers;
use super::reach;
use crate::api::{ApiRequest, ConnectPreview, Reply, Verdict};
use crate::args::ConnectArgs;
use crate::args::groups::GroupsArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, clean_lines, print};

pub fn run(args: &ConnectArgs) -> CommandOutcome {
    let GroupsArgs { groups, all } = &args.groups;
    if !args.dry_run {
        let typed = if *all { "--all".to_owned() } else { groups.join(" ") };
        return Err(CommandFailure::usage(format!(
            "nodes connect by themselves, and 'farshore sync {typed}' orders a sync: 'farshore connect {typed} --dry-run' says what \
             that would send"
        )));
    }
    let mut refused = Answers::new("connect", args.json);
    let mut worst = Exit::Done;
    let targets = refused.targets(&args.reach, groups, *all)?;
    worst = worst.max(refused.told()?);
    for group in targets {
        // The next group is looked at all the same.
        let exit = match reach::ask_any(&args.reach, ApiRequest::ConnectPreview { group: group.clone() }) {
            Ok(Reply::ConnectPreview(preview)) => shown(args, &preview)?,
            other => {
                refused.add(&group, other)?;
                refused.told()?
            }
        };
        worst = worst.max(exit);
    }
    Ok(worst.into())
}

/// Prints what is known of one group.
fn shown(args: &ConnectArgs, preview: &ConnectPreview) -> Result<Exit, CommandFailure> {
    let text = match args.json {
        true => serde_json::to_string(preview).map_err(|error| error.to_string())? + "\n",
        false => page(preview),
    };
    print(&text)?;
    let goes_by_itself = matches!(preview.verdict, Verdict::UnderWay | Verdict::GoOn | Verdict::UpdateSync);
    Ok(if goes_by_itself { Exit::Done } else { Exit::Warning })
}

fn page(preview: &ConnectPreview) -> String {
    let ConnectPreview { group, verdict, message, from, to, regions, bytes, group_bytes, .. } = preview;
    let mut text = format!("{}: {}: {}\n", clean(group), clean(verdict.as_str()), clean_lines(message));
    if let (Some(from), Some(to)) = (from, to) {
        let (from, to) = (clean(from), clean(to));
        text += &format!("  Direction  {from} to {to}: what {to} has is overwritten\n");
    }
    text += &format!("  Regions    {regions} of {} at most\n", show_size(preview.region_bytes));
    text += &format!("  Bytes      {} at most, of {}\n", show_size(*bytes), show_size(*group_bytes));
    if let (Some(here), Some(there)) = (preview.written_here_bytes, preview.written_there_bytes) {
        let (here, there, node, peer) = (show_size(here), show_size(there), clean(&preview.node), clean(&preview.peer));
        text += &format!(
            "  Fork       {here} at most on {node} that {peer} lacks, {there} at most on {peer} that {node} lacks\n"
        );
    }
    text += &match (preview.seconds, preview.rate_bytes_per_s) {
        (Some(seconds), Some(rate)) => {
            format!("  Time       {} at {}, as the link was measured\n", show_seconds(seconds), show_rate(rate as f64))
        }
        _ => "  Time       unknown: the link was not measured yet\n".to_owned(),
    };
    if let Some(why) = &preview.waits_for {
        text += &format!("  Waits      {}\n", clean_lines(why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_way_how_much_and_how_long() {
        let text = r#"{"schema":"s","node":"alpha","group":"db","peer":"beta","verdict":"update-sync","message":"so",
            "from":"alpha","to":"beta","regions":24,"region_bytes":4096,"bytes":98304,"group_bytes":1048576,
            "rate_bytes_per_s":49152,"seconds":2.0,"waits_for":"waiting for 'sync': autosync is off"}"#;
        let preview: ConnectPreview = serde_json::from_str(text).expect("one");
        let shown = page(&preview);
        for part in [
            "db: update-sync: so\n",
            "  Direction  alpha to beta: what beta has is overwritten\n",
            "  Regions    24 of 4 KiB at most\n",
            "  Bytes      96 KiB at most, of 1 MiB\n",
            "  Waits      waiting for 'sync': autosync is off\n",
        ] {
            assert!(shown.contains(part), "no {part:?} in: {shown}");
        }
        assert!(shown.contains(&format!("  Time       {} at ", show_seconds(2.0))), "{shown}");
        let fork =
            ConnectPreview { written_here_bytes: Some(65536), written_there_bytes: Some(131072), ..preview.clone() };
        let said = "  Fork       64 KiB at most on alpha that beta lacks, 128 KiB at most on beta that alpha lacks\n";
        assert!(page(&fork).contains(said) && !shown.contains("Fork"), "{}", page(&fork));
        let nothing = ConnectPreview { from: None, to: None, seconds: None, waits_for: None, ..preview };
        let shown = page(&nothing);
        assert!(!shown.contains("Direction") && shown.contains("unknown: the link was not measured"), "{shown}");
    }
}
