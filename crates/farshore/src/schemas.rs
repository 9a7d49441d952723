//! The documents that people and programs read: each is a type, and what the manual says of its keys is made from the type's comments.
//!
//! For each document there are a JSON Schema in docs/book/schemas, tables of keys in a page, and an example beside the schema. `BLESS=1` writes the
//! first two anew; examples come from the whole-process tests (`tests/common/schema.rs`).

mod fits;
#[path = "../../../xtask/src/made.rs"]
mod made;
mod streams;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::api::{
    ANSWER_SCHEMA, AnswerList, CLIENTS_SCHEMA, CONFIG_PLAN_SCHEMA, CONNECT_SCHEMA, COUNTERS_SCHEMA, ClientList,
    ConfigPlan, ConnectPreview, DaemonCounters, LINK_HISTORY_SCHEMA, LINKS_SCHEMA, LinkList, MARKS_SCHEMA, NodeView,
    OPERATION_SCHEMA, OperationView, QUEUE_SCHEMA, QueueReport, RPO_SCHEMA, RpoReport, STATS_SCHEMA, STATUS_SCHEMA,
    StatsReport,
};
use crate::attach::record::{ATTACHED_SCHEMA, AttachedList};
use crate::cmd::{CERTIFICATES_SCHEMA, CertReport};
use crate::events::{EVENT_SCHEMA, EVENTS_SCHEMA, EventPage, EventRecord};
use plan::answer::{CALC_SCHEMA, CalcReport};
use plan::inputs::{DISK_TEST_SCHEMA, LINK_TEST_SCHEMA};
use plan::plan_text::{PLAN_SCHEMA, PlanReport};
use plan::scan::{SCAN_SCHEMA, ScanReport};
use streams::{DoctorEvent, LinkHistoryForms, LinkTestEvent, MarkForms, ProbeEvent, SoakEvent, StreamLine, SweepEvent};
use tables::Tables;
use toolkit::disk_test::report::DiskReport;
use toolkit::doctor::report::{self as doctor, DoctorReport};
use toolkit::line_test::document::LinkTestReport;
use toolkit::line_test::modes::{MODES_SCHEMA, ModesReport};
use toolkit::line_test::path::{self, ProbeReport};
use toolkit::line_test::report as line;
use toolkit::line_test::soak::{self, SoakReport};
use toolkit::line_test::sweep::{self, SweepReport, SweepsReport};

/// What makes tables and schemas, and what makes examples.
const TABLES_COMMAND: &str = "BLESS=1 cargo test -p farshore --lib schemas";
const EXAMPLES_COMMAND: &str = "BLESS=1 cargo test -p farshore";

/// The page of all documents that are no state of the daemon.
const TOOLS: &str = "json.md";

/// Keys of `status --json` with tables of their own.
const STATUS_PATHS: &[&str] = &[
    "",
    "tls",
    "shared",
    "clients",
    "links[]",
    "links[].socket",
    "links[].tcp",
    "links[].compression",
    "peer_says[]",
    "groups[]",
    "groups[].volumes[]",
    "groups[].queue",
    "groups[].peers[]",
    "groups[].marks[]",
    "groups[].sync",
    "groups[].verify",
    "groups[].verified",
];

/// A document.
struct Document {
    name: &'static str,
    page: &'static str,
    /// Keys with a table of their own in the page; the first one is the root.
    paths: &'static [&'static str],
    /// The type, as the schemas of others call it.
    type_name: String,
    schema: Value,
}

fn document<T: JsonSchema>(name: &'static str, page: &'static str, paths: &'static [&'static str]) -> Document {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = tables::without_defaults(generator.into_root_schema_for::<T>().to_value());
    schema["title"] = name.into();
    name_it(&mut schema, name);
    Document { name, page, paths, type_name: T::schema_name().into_owned(), schema }
}

/// The key `schema` has one value, in each form of the document.
fn name_it(schema: &mut Value, name: &str) {
    if let Some(key) = schema.pointer_mut("/properties/schema") {
        key["const"] = name.into();
        return;
    }
    let forms = schema["anyOf"].as_array().expect("a document has keys, or forms that have").clone();
    for form in forms {
        let place = form["$ref"].as_str().expect("each form is a type").trim_start_matches('#').to_owned();
        let key = schema.pointer_mut(&format!("{place}/properties/schema")).expect("each form has its name");
        key["const"] = name.into();
    }
}

/// Of the pages that have them, in the order of the pages.
fn documents() -> Vec<Document> {
    const ROOT: &[&str] = &[""];
    let status = "status-json.md";
    vec![
        document::<NodeView>(STATUS_SCHEMA, status, STATUS_PATHS),
        document::<ClientList>(CLIENTS_SCHEMA, status, ROOT),
        document::<AnswerList>(ANSWER_SCHEMA, status, ROOT),
        document::<OperationView>(OPERATION_SCHEMA, status, ROOT),
        document::<ConnectPreview>(CONNECT_SCHEMA, status, ROOT),
        document::<ConfigPlan>(CONFIG_PLAN_SCHEMA, status, ROOT),
        document::<MarkForms>(MARKS_SCHEMA, status, ROOT),
        document::<AttachedList>(ATTACHED_SCHEMA, status, ROOT),
        document::<QueueReport>(QUEUE_SCHEMA, status, ROOT),
        document::<RpoReport>(RPO_SCHEMA, status, ROOT),
        document::<StatsReport>(STATS_SCHEMA, status, ROOT),
        document::<LinkList>(LINKS_SCHEMA, status, ROOT),
        document::<LinkHistoryForms>(LINK_HISTORY_SCHEMA, status, ROOT),
        document::<CertReport>(CERTIFICATES_SCHEMA, status, ROOT),
        document::<DaemonCounters>(COUNTERS_SCHEMA, status, ROOT),
        document::<EventRecord>(EVENT_SCHEMA, "events.md", ROOT),
        document::<EventPage>(EVENTS_SCHEMA, "events.md", ROOT),
        document::<ScanReport>(SCAN_SCHEMA, TOOLS, ROOT),
        document::<PlanReport>(PLAN_SCHEMA, TOOLS, ROOT),
        document::<CalcReport>(CALC_SCHEMA, TOOLS, ROOT),
        document::<DoctorReport>(doctor::DOCTOR_SCHEMA, TOOLS, &["", "facts"]),
        document::<StreamLine<DoctorEvent>>(doctor::STREAM_SCHEMA, TOOLS, ROOT),
        document::<DiskReport>(DISK_TEST_SCHEMA, TOOLS, ROOT),
        document::<LinkTestReport>(LINK_TEST_SCHEMA, TOOLS, &["", "start.terms"]),
        document::<ModesReport>(MODES_SCHEMA, TOOLS, ROOT),
        document::<SweepReport>(sweep::SWEEP_SCHEMA, TOOLS, ROOT),
        document::<SweepsReport>(sweep::SWEEPS_SCHEMA, TOOLS, ROOT),
        document::<ProbeReport>(path::PROBE_SCHEMA, TOOLS, ROOT),
        document::<SoakReport>(soak::SOAK_SCHEMA, TOOLS, ROOT),
        document::<StreamLine<LinkTestEvent>>(line::STREAM_SCHEMA, TOOLS, ROOT),
        document::<StreamLine<SweepEvent>>(sweep::STREAM_SCHEMA, TOOLS, ROOT),
        document::<StreamLine<ProbeEvent>>(path::STREAM_SCHEMA, TOOLS, ROOT),
        document::<StreamLine<SoakEvent>>(soak::STREAM_SCHEMA, TOOLS, ROOT),
    ]
}

/// Types that a document takes over from another one: what stands in its table instead of their keys.
fn elsewhere(document: &Document, all: &[Document]) -> BTreeMap<String, String> {
    let documents = all.iter().filter(|other| other.name != document.name);
    let mut places: BTreeMap<String, String> =
        documents.map(|other| (other.type_name.clone(), format!("object, `{}`", other.name))).collect();
    let parts: &[(&str, &str, &str)] = &[
        (STATUS_SCHEMA, "LinkReport", "object, as in [`links[]`](#links)"),
        (STATUS_SCHEMA, "MarkStatus", "object, as in [`groups[].marks[]`](#groupsmarks)"),
        (STATUS_SCHEMA, "QueueView", "object, as in [`groups[].queue`](#groupsqueue)"),
        (SCAN_SCHEMA, "TraceWorkload", "object, as in `farshore-scan/1`"),
        (LINK_TEST_SCHEMA, "Terms", "object, as `start.terms` of `farshore-link-test/1`"),
        (LINK_TEST_SCHEMA, "SpreadReport", "object, `SpreadReport` of `farshore-link-test/1`"),
    ];
    for (home, type_name, place) in parts.iter().filter(|(home, ..)| *home != document.name) {
        debug_assert!(all.iter().any(|document| document.name == *home), "{home} is a document");
        places.insert((*type_name).to_owned(), (*place).to_owned());
    }
    places
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book")
}

fn is_blessed() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap_or_else(|error| panic!("docs/book/{name}: {error}"))
}

fn file_name(document: &Document) -> String {
    format!("{}.json", document.name.replace('/', "-"))
}

/// The example of a document.
fn example(name: &str) -> String {
    let file = docs().join("schemas/examples").join(format!("{}.json", name.replace('/', "-")));
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}: run {EXAMPLES_COMMAND}", file.display()))
}

/// The parts of a page, by their names.
fn parts(document: &Document, all: &[Document]) -> Vec<(String, String)> {
    let elsewhere = elsewhere(document, all);
    let texts = Tables::new(document.name, &document.schema, &elsewhere).parts(document.paths);
    let named = document.paths.iter().zip(texts).map(|(path, text)| match *path {
        "" => {
            let file = file_name(document);
            let link = format!("Schema: [`{}`](schemas/{file}); [an example](schemas/examples/{file}).", document.name);
            (format!("keys of {}", document.name), format!("{link}\n\n{text}"))
        }
        path => (format!("keys of {}, {path}", document.name), text),
    });
    named.collect()
}

/// Each page has the tables that the types make. `BLESS=1` writes them anew.
#[test]
fn each_page_has_the_tables_of_its_documents() {
    let all = documents();
    let mut pages: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for document in &all {
        pages.entry(document.page).or_default().extend(parts(document, &all));
    }
    for (name, parts) in pages {
        let parts: Vec<(&str, String)> = parts.iter().map(|(part, text)| (part.as_str(), text.clone())).collect();
        let before = page(name);
        let after = made::remade(&before, TABLES_COMMAND, &parts);
        let after = after.unwrap_or_else(|error| panic!("docs/book/{name}: {error}"));
        if is_blessed() {
            fs::write(docs().join(name), after).expect("written");
        } else {
            assert!(after == before, "docs/book/{name} differs: run {TABLES_COMMAND}");
        }
    }
}

/// Each document has its schema in docs/book/schemas, and nothing else lies there.
#[test]
fn each_schema_is_what_the_types_say() {
    let folder = docs().join("schemas");
    if is_blessed() {
        fs::create_dir_all(&folder).expect("a folder");
    }
    let mut names = Vec::new();
    for document in documents() {
        let text = format!("{:#}\n", document.schema);
        let file = folder.join(file_name(&document));
        if is_blessed() {
            fs::write(&file, &text).expect("written");
        }
        let is_same = fs::read_to_string(&file).is_ok_and(|found| found == text);
        assert!(is_same, "{} differs: run {TABLES_COMMAND}", file.display());
        names.push(file_name(&document));
    }
    for folder in [folder.clone(), folder.join("examples")] {
        for found in fs::read_dir(&folder).expect("docs/book/schemas").flatten().filter(|found| found.path().is_file())
        {
            let name = found.file_name().into_string().expect("text");
            assert!(names.contains(&name), "{} is no document's", found.path().display());
        }
    }
}

/// Each document has an example, and the example fits the schema: it has every key that is always there, and no other than
/// those that are described.
#[test]
fn each_example_fits_its_schema() {
    let mut faults = Vec::new();
    for document in documents() {
        match serde_json::from_str::<Value>(&example(document.name)) {
            Ok(example) => {
                let misfits = fits::misfits(&document.schema, &example);
                faults.extend(misfits.iter().map(|misfit| format!("{}: {misfit}", document.name)));
            }
            Err(error) => faults.push(format!("{}: {error}: run {EXAMPLES_COMMAND}", document.name)),
        }
    }
    // While pages are written anew, examples come last.
    assert!(faults.is_empty() || is_blessed(), "{faults:#?}");
}

/// The examples of what is read back are read into their types.
#[test]
fn what_is_read_back_is_read_from_its_example() {
    // While pages are written anew, examples come last.
    if is_blessed() {
        return;
    }
    let status = example(STATUS_SCHEMA);
    assert!(serde_json::from_str::<NodeView>(&status).is_ok_and(|status| status.schema == STATUS_SCHEMA));
    assert!(serde_json::from_str::<ClientList>(&example(CLIENTS_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<AnswerList>(&example(ANSWER_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<OperationView>(&example(OPERATION_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<ConnectPreview>(&example(CONNECT_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<ConfigPlan>(&example(CONFIG_PLAN_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<DaemonCounters>(&example(COUNTERS_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<EventRecord>(&example(EVENT_SCHEMA)).is_ok());
    assert!(serde_json::from_str::<EventPage>(&example(EVENTS_SCHEMA)).is_ok());
    assert_eq!(doctor::facts_of(&example(doctor::DOCTOR_SCHEMA)).err(), None);
    assert_eq!(plan::inputs::link(&example(LINK_TEST_SCHEMA)).err(), None);
    assert_eq!(plan::inputs::disk(&example(DISK_TEST_SCHEMA)).err(), None);
}
