//! Metrics: what `status` tells, as a page that Prometheus reads.
//!
//! [`page`] is a function of the status and nothing else, so the daemon's own page and `status --format prometheus` are the same. The
//! names stand in one [`table`], a contract like the keys of the status: rows are added, never renamed. What the status does not
//! know is left out, never guessed: a value that is not there is unknown, as `null` is.

mod encode;
pub mod server;
mod table;

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::api::{DaemonCounters, NodeView, STATUS_SCHEMA};

/// In what form a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageForm {
    /// For Prometheus, which asks for it.
    OpenMetrics,
    /// The text of before, for the collector of text files, promtool and people.
    Plain,
}

/// What a page is made of.
#[derive(Clone, Debug)]
pub struct PageFacts {
    /// Whether the data thread told all this. If not, the view holds what is known without it.
    pub is_up: bool,
    pub status: NodeView,
    pub counters: Option<DaemonCounters>,
    /// When that was, seconds since 1970.
    pub unix_seconds: f64,
}

impl PageForm {
    /// By what a client says that it takes.
    pub fn accepted(accept: &str) -> PageForm {
        let takes = accept.split(',').any(|kind| kind.trim_start().starts_with("application/openmetrics-text"));
        if takes { PageForm::OpenMetrics } else { PageForm::Plain }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            PageForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            PageForm::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl PageFacts {
    /// What the daemon counted by this name.
    fn sum(&self, name: &str) -> Option<u64> {
        self.counters.as_ref()?.counters.get(name).copied()
    }

    pub fn reported(status: NodeView, counters: Option<DaemonCounters>) -> PageFacts {
        PageFacts { is_up: true, status, counters, unix_seconds: now() }
    }

    /// Nobody told how the groups are. `node` is empty where not even that is known.
    pub fn unreported(cluster: &str, node: &str, version: &str) -> PageFacts {
        let status = NodeView {
            peer_says: Vec::new(),
            schema: STATUS_SCHEMA.to_owned(),
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            version: version.to_owned(),
            uptime_s: 0.0,
            warnings: Vec::new(),
            tls: None,
            shared: None,
            clients: None,
            state_directory: None,
            lost_log_lines: 0,
            links: Vec::new(),
            groups: Vec::new(),
        };
        PageFacts { is_up: false, status, counters: None, unix_seconds: now() }
    }
}

impl PageFacts {
    /// The daemon itself speaks, not a command that found none.
    fn knows_node(&self) -> bool {
        !self.status.node.is_empty()
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The whole page.
pub fn page(facts: PageFacts, form: PageForm) -> String {
    let mut registry = Registry::with_prefix("farshore");
    registry.register_collector(Box::new(encode::PageCollector(facts)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a text takes what is written to it");
    match form {
        PageForm::OpenMetrics => page,
        PageForm::Plain => plain(&page),
    }
}

/// The same in the form of before OpenMetrics: a counter's name is that of its samples, an info is a gauge, units and the end are
/// not told.
fn plain(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    // Its help stands before the line that says what a metric is.
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                plain += &format!("# HELP {name}{suffix} {help}\n");
            }
            plain += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            plain += line;
            plain.push('\n');
        }
    }
    plain
}

/// The table of metrics for readers.
pub fn manual() -> String {
    let head = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    let row = |row: &table::MetricRow| {
        let labels: Vec<String> = row.labels().iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", row.sample_name(), row.kind().as_str(), labels.join(", "), row.help)
    };
    table::ROWS.iter().map(row).fold(head, |text, row| text + &row)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::api::LatencyClasses;

    #[test]
    fn the_form_of_before_has_the_samples_names() {
        let page = "# HELP a Writes.\n# TYPE a counter\na_total{g=\"x\"} 1\n# HELP b_bytes Size.\n# TYPE b_bytes gauge\n\
                    # UNIT b_bytes bytes\nb_bytes 2\n# HELP c Who.\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n";
        assert_eq!(
            plain(page),
            "# HELP a_total Writes.\n# TYPE a_total counter\na_total{g=\"x\"} 1\n# HELP b_bytes Size.\n\
             # TYPE b_bytes gauge\nb_bytes 2\n# HELP c_info Who.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
    }

    #[test]
    fn a_client_gets_what_it_takes() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(PageForm::accepted(prometheus), PageForm::OpenMetrics);
        for other in ["", "*/*", "text/plain", "text/html, application/xhtml+xml"] {
            assert_eq!(PageForm::accepted(other), PageForm::Plain, "{other}");
        }
    }

    /// What is not known has no sample, and a family without samples is not there at all.
    #[test]
    fn a_data_thread_that_tells_nothing_leaves_a_page_that_says_so() {
        let page = page(PageFacts::unreported("c", "near", "0.1.0"), PageForm::Plain);
        let samples: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "farshore_up 0",
                "farshore_node_info{cluster=\"c\",node=\"near\",version=\"0.1.0\"} 1",
                "farshore_node_warnings 0",
                "farshore_log_lines_lost_total 0",
            ]
        );
    }

    /// `status --format prometheus --on` shows a peer's word.
    #[test]
    fn counts_that_no_number_can_add_up_end_at_the_largest() {
        let classes = LatencyClasses { bounds_us: vec![100, 200], counts: vec![7, u64::MAX, 5], sum_us: 1 };
        let latencies = BTreeMap::from([("write".to_owned(), classes)]);
        let (schema, node) = (String::new(), "near".to_owned());
        let counters = DaemonCounters { schema, node, counters: BTreeMap::new(), latencies };
        let facts = PageFacts { counters: Some(counters), ..PageFacts::unreported("c", "near", "0.1.0") };
        let page = page(facts, PageForm::Plain);
        let all = page.lines().find(|line| line.contains("+Inf")).expect("a class without a bound");
        assert!(all.ends_with(&format!(" {}", u64::MAX)), "{page}");
    }
}
