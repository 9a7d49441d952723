//! What the program prints, held against docs/book/schemas; and the examples of the manual, which are made from it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

#[path = "../../src/schemas/fits.rs"]
mod fits;

/// Items of a list, and keys of a map, that an example has; of plain values more.
const ITEMS: usize = 2;
const PLAIN_ITEMS: usize = 8;
/// Keys whose values are maps, of which two entries tell enough.
const MAPS: [&str; 4] = ["counters", "latencies", "settings", "sysctls"];
/// Longer lines are broken.
const COLUMNS: usize = 118;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book")
}

/// A document that the program printed: every key of it is described, and every key that is always there is there.
#[track_caller]
pub fn check(document: &Value) {
    let (name, schema) = schema_of(document);
    let misfits = fits::misfits(&schema, document);
    assert!(misfits.is_empty(), "{name}: {misfits:#?}\n{document}");
}

/// The same of one that tells enough to be an example. With `BLESS=1` it becomes the manual's, if the manual has none that fits.
#[track_caller]
pub fn seen(document: &Value) {
    check(document);
    // Of a stream the events between the two tell most.
    if std::env::var_os("BLESS").is_some() && !matches!(document["event"].as_str(), Some("start" | "end")) {
        let (name, schema) = schema_of(document);
        write_example(name, &schema, document);
    }
}

#[track_caller]
fn schema_of(document: &Value) -> (&str, Value) {
    let name = document["schema"].as_str().unwrap_or_else(|| panic!("no schema: {document}"));
    let file = docs().join("schemas").join(format!("{}.json", name.replace('/', "-")));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    (name, serde_json::from_str(&text).expect("a schema is JSON"))
}

fn write_example(name: &str, schema: &Value, document: &Value) {
    let file = docs().join("schemas/examples").join(format!("{}.json", name.replace('/', "-")));
    let old = fs::read_to_string(&file).unwrap_or_default();
    if !serde_json::from_str::<Value>(&old).is_ok_and(|old| fits::misfits(schema, &old).is_empty()) {
        fs::write(&file, format!("{}\n", layout(&example(document), 0))).expect("written");
    }
}

/// The document, short, and without what only this machine has.
fn example(document: &Value) -> Value {
    match document {
        Value::Object(object) => {
            let one = |(key, value): (&String, &Value)| {
                let value = match (key.as_str(), value) {
                    ("host", _) => "alpha".into(),
                    (key, Value::Object(map)) if MAPS.contains(&key) => {
                        let firsts = map.iter().take(ITEMS).map(|(key, value)| (key.clone(), example(value)));
                        Value::Object(firsts.collect())
                    }
                    _ => example(value),
                };
                (key.clone(), value)
            };
            Value::Object(object.iter().map(one).collect::<Map<_, _>>())
        }
        Value::Array(list) => {
            let most = match list.first() {
                // One whole document inside of another is enough.
                Some(Value::Object(first)) if first.contains_key("schema") => 1,
                Some(Value::Object(_) | Value::Array(_)) => ITEMS,
                _ => PLAIN_ITEMS,
            };
            list.iter().take(most).map(example).collect()
        }
        Value::String(text) => {
            let word = |word: &str| match Path::new(word).file_name() {
                Some(name) if Path::new(word).starts_with(std::env::temp_dir()) => {
                    format!("/var/lib/farshore/{}", name.to_string_lossy())
                }
                _ => word.to_owned(),
            };
            text.split(' ').map(word).collect::<Vec<_>>().join(" ").into()
        }
        // More digits than anybody reads.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or(Value::Null, |number| ((number * 1e6).round() / 1e6).into())
        }
        other => other.clone(),
    }
}

/// JSON for eyes: what fits a line stands in one, and the schema's name comes first.
fn layout(value: &Value, indent: usize) -> String {
    let line = in_a_line(value);
    if indent + line.len() <= COLUMNS {
        return line;
    }
    let margin = " ".repeat(indent + 2);
    let parts: Vec<String> = match value {
        Value::Object(object) => {
            let one = |(key, value): (&String, &Value)| {
                let key = format!("\"{key}\": ");
                // What does not fit beside its key is broken below it.
                format!("{margin}{key}{}", layout_behind(value, indent + 2, key.len()))
            };
            ordered(object).map(one).collect()
        }
        Value::Array(list) => list.iter().map(|value| format!("{margin}{}", layout(value, indent + 2))).collect(),
        _ => return line,
    };
    let [open, close] = if value.is_array() { ['[', ']'] } else { ['{', '}'] };
    format!("{open}\n{}\n{}{close}", parts.join(",\n"), " ".repeat(indent))
}

fn layout_behind(value: &Value, indent: usize, key: usize) -> String {
    let line = in_a_line(value);
    if indent + key + line.len() <= COLUMNS { line } else { layout(value, indent) }
}

fn in_a_line(value: &Value) -> String {
    match value {
        Value::Object(object) if object.is_empty() => "{}".to_owned(),
        Value::Object(object) => {
            let one = |(key, value): (&String, &Value)| format!("\"{key}\": {}", in_a_line(value));
            format!("{{ {} }}", ordered(object).map(one).collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(in_a_line).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn ordered(object: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let is_first = |key: &str| key == "schema";
    let firsts = object.iter().filter(move |(key, _)| is_first(key));
    firsts.chain(object.iter().filter(move |(key, _)| !is_first(key)))
}
