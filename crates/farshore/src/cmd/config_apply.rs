//! `config plan` and `config apply`: what a changed configuration file means for the running daemon, and to have it taken up.

use toolkit::screen::clean;

use super::answers::Answers;
use super::reach;
use crate::api::{ApiRequest, ConfigPlan, Reply};
use crate::args::{ConfigApplyArgs, ConfigPlanArgs};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, clean_lines, print};

pub fn plan(args: &ConfigPlanArgs) -> CommandOutcome {
    let plan = match reach::ask_any(&args.reach, ApiRequest::ConfigPlan)? {
        Reply::ConfigPlan(plan) => *plan,
        Reply::Error { message, code, refusal, .. } => return Err(CommandFailure::refused(message, &code, refusal)),
        other => return Err(reach::unexpected(&other)),
    };
    let text = match args.json {
        true => serde_json::to_string(&plan).map_err(|error| error.to_string())? + "\n",
        false => page(&plan),
    };
    print(&text)?;
    let is_in_the_way = !plan.needs_restart.is_empty() || plan.steps.iter().any(|step| step.clients > 0);
    Ok(if is_in_the_way { Exit::Warning } else { Exit::Done }.into())
}

pub fn apply(args: &ConfigApplyArgs) -> CommandOutcome {
    let request = ApiRequest::ConfigApply { close_clients: args.close_clients };
    let mut answers = Answers::new("config apply", args.json);
    answers.add_of_node(reach::ask_any(&args.reach, request))?;
    answers.finish()
}

fn page(plan: &ConfigPlan) -> String {
    let ConfigPlan { node, file, steps, needs_restart, .. } = plan;
    let (node, file) = (clean(node), clean(file));
    if steps.is_empty() && needs_restart.is_empty() {
        return format!("{file} says what holds on node {node} already; nothing to do\n");
    }
    let mut text = format!("'farshore config apply' on node {node} would take up {file}:\n");
    let width = steps.iter().map(|step| step.action.as_str().len()).max().unwrap_or(0);
    for step in steps {
        let (action, group) = (clean(step.action.as_str()), step.group.as_deref().unwrap_or("(all groups)"));
        text += &format!("  {action:width$}  {}: {}\n", clean(group), clean_lines(&step.text));
        if step.clients > 0 {
            let clients = clients(step.clients);
            text += &format!("  {:width$}  {clients} attached: they end first, or --close-clients cuts them off\n", "");
        }
        if step.clients_held > 0 {
            let clients = clients(step.clients_held);
            text += &format!("  {:width$}  {clients} attached: their requests wait meanwhile\n", "");
        }
    }
    if !needs_restart.is_empty() {
        text += "It would do nothing of this: a restart of the daemon is needed for\n";
        text.extend(needs_restart.iter().map(|reason| format!("  {}\n", clean_lines(reason))));
    }
    text
}

fn clients(count: u64) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_list_of_steps() {
        let text = r#"{"schema":"s","node":"alpha","file":"/f.toml","steps":[
            {"action":"restart","group":"db","text":"volume log: its device has 2 GiB now, and had 1 GiB","clients":0,"clients_held":1},
            {"action":"remove","group":"old","text":"it stops","clients":2,"clients_held":0},
            {"action":"add","group":"web","text":"it starts","clients":0}],"needs_restart":[]}"#;
        let plan: ConfigPlan = serde_json::from_str(text).expect("one");
        assert_eq!(
            page(&plan),
            "'farshore config apply' on node alpha would take up /f.toml:\n  restart  db: volume log: its device has 2 GiB now, and \
             had 1 GiB\n           1 client attached: their requests wait meanwhile\n  remove   old: it stops\n           2 clients attached: they end first, or --close-clients cuts them off\n  add      web: it starts\n"
        );
        let same = ConfigPlan { steps: Vec::new(), ..plan.clone() };
        assert_eq!(page(&same), "/f.toml says what holds on node alpha already; nothing to do\n");
        let more = ConfigPlan { needs_restart: vec!["the table [tls]".into()], ..plan };
        assert!(page(&more).ends_with("a restart of the daemon is needed for\n  the table [tls]\n"));
    }
}
