//! The manual's tables of keys, from a schema: a row for each key, with its type and the comment of its field.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

/// Words that fit a row with their meanings; longer lists are tables of their own.
const WORDS_IN_A_ROW: usize = 240;

/// A key of a document.
struct Row {
    /// From the document's root, such as `groups[].peers[].node`, or from its type, if that has a table of its own.
    path: String,
    kind: String,
    meaning: String,
    /// Types with a table of their own that its value has.
    types: Vec<String>,
    /// Words and their meanings, where they are too many for the row.
    words: Vec<(String, String)>,
}

/// All keys of one document.
pub struct Tables<'a> {
    name: &'a str,
    root: &'a Value,
    /// Types that are described at another place, and where.
    elsewhere: &'a BTreeMap<String, String>,
    /// Types that are used at several places: each has a table of its own.
    shared: BTreeSet<String>,
    rows: Vec<Row>,
    of_types: BTreeMap<String, Vec<Row>>,
}

impl<'a> Tables<'a> {
    pub fn new(name: &'a str, root: &'a Value, elsewhere: &'a BTreeMap<String, String>) -> Tables<'a> {
        let mut uses = BTreeMap::new();
        count_uses(root, &mut uses);
        let several = uses.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name);
        let mut tables = Tables {
            name,
            root,
            elsewhere,
            shared: several.filter(|name| !elsewhere.contains_key(name)).collect(),
            rows: Vec::new(),
            of_types: BTreeMap::new(),
        };
        // Words have no keys, wherever they stand.
        let has_keys = |name: &String| !tables.keys(tables.definition(name)).is_empty();
        tables.shared = tables.shared.iter().filter(|name| has_keys(name)).cloned().collect();
        tables.rows = tables.rows_of(root, "");
        let shared: Vec<String> = tables.shared.iter().cloned().collect();
        for name in shared {
            let rows = tables.rows_of(tables.definition(&name), "");
            tables.of_types.insert(name, rows);
        }
        tables
    }

    /// The parts of a manual's page, one for each path: the keys below it, without those below another path. `""` is the root.
    ///
    /// # Panics
    /// A path has no keys.
    pub fn parts(&self, paths: &[&str]) -> Vec<String> {
        let mut printed = BTreeSet::new();
        paths.iter().map(|path| self.part(path, paths, &mut printed)).collect()
    }

    fn part(&self, path: &str, paths: &[&str], printed: &mut BTreeSet<String>) -> String {
        let is_at_home = |row: &&Row| {
            let homes = paths.iter().filter(|path| below(&row.path, path).is_some());
            homes.max_by_key(|home| home.len()).is_some_and(|home| *home == path)
        };
        let rows: Vec<&Row> = self.rows.iter().filter(is_at_home).collect();
        assert!(!rows.is_empty(), "{} has no keys below {path:?}", self.name);
        let mut text = table("Key", rows.iter().map(|row| (below(&row.path, path).unwrap_or(&row.path), *row)));
        let mut next: VecDeque<&String> = rows.iter().flat_map(|row| &row.types).collect();
        while let Some(name) = next.pop_front() {
            if printed.insert(name.clone()) {
                let rows = &self.of_types[name];
                let head = format!("Key of `{name}`");
                text += &format!("\n{}", table(&head, rows.iter().map(|row| (row.path.as_str(), row))));
                next.extend(rows.iter().flat_map(|row| &row.types));
            }
        }
        text
    }

    fn definition(&self, name: &str) -> &'a Value {
        &self.root["$defs"][name]
    }

    fn rows_of(&self, schema: &'a Value, before: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        let keys = self.keys(schema);
        // Its word says which form the object has.
        let tag = keys.iter().find(|key| !key.words.is_empty()).map(|key| key.name);
        for key in keys {
            let path = format!("{before}{}", key.name);
            let (mut types, mut words) = (Vec::new(), key.words);
            let kind = if key.varies { "varies".to_owned() } else { self.kind(key.schema, &mut types) };
            let kind = if key.is_required { kind } else { format!("{kind}, may be absent") };
            if words.is_empty() {
                words = self.words(key.schema);
            }
            let mut meaning = match tag {
                Some(tag) if key.varies => format!("as `{tag}` says"),
                _ if key.varies => String::new(),
                _ => self.meaning(key.schema),
            };
            if !words.is_empty() && in_a_row(&words).len() <= WORDS_IN_A_ROW {
                let colon = if meaning.is_empty() { "" } else { ": " };
                meaning += &format!("{colon}{}", in_a_row(&words));
                words.clear();
            } else if !words.is_empty() && meaning.is_empty() {
                meaning = "one of the words below".to_owned();
            }
            let below = if key.varies { None } else { self.below(key.schema) };
            rows.push(Row { path: path.clone(), kind, meaning, types, words });
            if let Some((suffix, schema)) = below {
                rows.extend(self.rows_of(schema, &format!("{path}{suffix}.")));
            }
        }
        rows
    }

    /// The keys of an object, in the order of its fields as far as the schema has kept it.
    fn keys(&self, schema: &'a Value) -> Vec<Key<'a>> {
        let forms = ["oneOf", "anyOf"].into_iter().find_map(|key| schema[key].as_array());
        let forms: Vec<&'a Value> = forms.into_iter().flatten().map(|form| self.resolved(form)).collect();
        let mut keys: Vec<Key<'a>> = Vec::new();
        for object in std::iter::once(schema).chain(forms.iter().copied()) {
            for (name, value, is_required) in properties(object) {
                let is_own = std::ptr::eq(object, schema);
                let is_required = is_required && (is_own || forms.iter().all(|form| has(form, name)));
                let word = value["const"].as_str().filter(|word| !is_own && *word != self.name);
                let word = word.map(|word| (word.to_owned(), text(&object["description"])));
                match keys.iter_mut().find(|key| key.name == name) {
                    Some(key) => {
                        key.varies |= word.is_none() && *key.schema != *value;
                        key.words.extend(word);
                    }
                    None => {
                        let words = word.into_iter().collect();
                        keys.push(Key { name, schema: value, is_required, varies: false, words });
                    }
                }
            }
        }
        keys
    }

    /// What a key's value is, in the words of JSON; `types` gets those with a table of their own.
    fn kind(&self, schema: &'a Value, types: &mut Vec<String>) -> String {
        if let Some(name) = reference(schema) {
            if let Some(place) = self.elsewhere.get(name) {
                return place.clone();
            }
            if self.shared.contains(name) {
                types.push(name.to_owned());
                return format!("`{name}`");
            }
        }
        if schema["$ref"] == "#" {
            return format!("`{}`", self.name);
        }
        let schema = self.resolved(schema);
        if let Some(forms) = ["oneOf", "anyOf"].into_iter().find_map(|key| schema[key].as_array())
            && schema.get("properties").is_none()
        {
            let mut kinds: Vec<String> = forms.iter().map(|form| self.kind(form, types)).collect();
            let mut seen = BTreeSet::new();
            kinds.retain(|kind| seen.insert(kind.clone()));
            return kinds.join(" or ");
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if schema.get("const").or(schema.get("enum")).is_some() => vec!["string"],
            _ => vec!["any"],
        };
        let named = |kind: &str, types: &mut Vec<String>| match kind {
            "array" => match schema["prefixItems"].as_array() {
                Some(items) => {
                    let kinds: Vec<String> = items.iter().map(|item| self.kind(item, types)).collect();
                    format!("[{}]", kinds.join(", "))
                }
                None => format!("array of {}", self.kind(&schema["items"], types)),
            },
            "object" if schema["additionalProperties"].is_object() && schema.get("properties").is_none() => {
                format!("map of {}", self.kind(&schema["additionalProperties"], types))
            }
            kind => kind.to_owned(),
        };
        kinds.into_iter().map(|kind| named(kind, types)).collect::<Vec<_>>().join(" or ")
    }

    /// The object below a key that has no table of its own, and how its keys' paths go on.
    fn below(&self, schema: &'a Value) -> Option<(String, &'a Value)> {
        if schema["$ref"] == "#" {
            return None;
        }
        if let Some(name) = reference(schema)
            && (self.shared.contains(name) || self.elsewhere.contains_key(name))
        {
            return None;
        }
        let schema = self.resolved(schema);
        if !schema["items"].is_null() {
            return self.below(&schema["items"]).map(|(suffix, below)| (format!("[]{suffix}"), below));
        }
        if schema["additionalProperties"].is_object() && schema.get("properties").is_none() {
            let below = self.below(&schema["additionalProperties"])?;
            return Some((format!(".*{}", below.0), below.1));
        }
        if let Some(forms) = schema["anyOf"].as_array()
            && let [one, null] = &forms[..]
            && null["type"] == "null"
        {
            return self.below(one);
        }
        if self.keys(schema).is_empty() { None } else { Some((String::new(), schema)) }
    }

    /// Words that a value may be, and their meanings.
    fn words(&self, schema: &'a Value) -> Vec<(String, String)> {
        let schema = self.resolved(schema);
        if let Some(word) = schema["const"].as_str() {
            return vec![(word.to_owned(), String::new())];
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().filter_map(Value::as_str).map(|word| (word.to_owned(), String::new())).collect();
        }
        let forms = ["oneOf", "anyOf"].into_iter().find_map(|key| schema[key].as_array());
        let of_form = |form: &'a Value| match form["const"].as_str() {
            Some(word) => vec![(word.to_owned(), text(&form["description"]))],
            None => self.words(form),
        };
        forms.into_iter().flatten().flat_map(of_form).collect()
    }

    /// The comment of the field, else that of its type.
    fn meaning(&self, schema: &'a Value) -> String {
        match text(&schema["description"]) {
            own if own.is_empty() => text(&self.resolved(schema)["description"]),
            own => own,
        }
    }

    fn resolved(&self, schema: &'a Value) -> &'a Value {
        reference(schema).map_or(schema, |name| self.definition(name))
    }
}

struct Key<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
    /// Each form of the object has another value here.
    varies: bool,
    words: Vec<(String, String)>,
}

/// The type that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// Names, schemas, and whether they are always there; those that are come first, in the order of the fields.
fn properties(object: &Value) -> Vec<(&str, &Value, bool)> {
    let Some(all) = object["properties"].as_object() else { return Vec::new() };
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let firsts = required.iter().filter_map(|name| Some((*name, all.get(*name)?, true)));
    let others = all.iter().filter(|(name, _)| !required.contains(&name.as_str()));
    firsts.chain(others.map(|(name, schema)| (name.as_str(), schema, false))).collect()
}

fn has(object: &Value, name: &str) -> bool {
    object["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name))
}

fn count_uses(value: &Value, uses: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(object) => {
            if let Some(name) = reference(value) {
                *uses.entry(name.to_owned()).or_default() += 1;
            }
            object.values().for_each(|value| count_uses(value, uses));
        }
        Value::Array(list) => list.iter().for_each(|value| count_uses(value, uses)),
        _ => {}
    }
}

/// What of a path stands below another one.
fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    match above {
        "" => Some(path),
        _ => path.strip_prefix(above)?.strip_prefix('.'),
    }
}

/// A comment as one line.
fn text(comment: &Value) -> String {
    let words: Vec<&str> = comment.as_str().unwrap_or_default().split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

fn in_a_row(words: &[(String, String)]) -> String {
    let has_meanings = words.iter().any(|(_, meaning)| !meaning.is_empty());
    let one = |(word, meaning): &(String, String)| match meaning.as_str() {
        "" => format!("`{word}`"),
        meaning => format!("`{word}` ({meaning})"),
    };
    words.iter().map(one).collect::<Vec<_>>().join(if has_meanings { "; " } else { ", " })
}

fn table<'a>(head: &str, rows: impl Iterator<Item = (&'a str, &'a Row)>) -> String {
    let (mut out, mut words) = (format!("| {head} | Type | Meaning |\n|---|---|---|\n"), String::new());
    for (path, row) in rows {
        assert!(!row.meaning.is_empty(), "`{path}` below `{head}` has no meaning: its field needs a comment");
        out += &format!("| `{path}` | {} | {} |\n", row.kind, row.meaning);
        if !row.words.is_empty() {
            words += &format!("\n| `{path}` | Meaning |\n|---|---|\n");
            words.extend(row.words.iter().map(|(word, meaning)| format!("| `{word}` | {meaning} |\n")));
        }
    }
    out + &words
}

/// The schema without what no reader asks for: what a key is read as where an older program left it out.
pub fn without_defaults(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let is_schema = |object: &Map<String, Value>| object.contains_key("type") || object.contains_key("$ref");
            let drops = is_schema(&object) || object.contains_key("anyOf");
            let kept = object.into_iter().filter(|(key, _)| !(drops && key == "default"));
            Value::Object(kept.map(|(key, value)| (key, without_defaults(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_defaults).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_types_places_and_words() {
        let root = json!({
            "type": "object", "required": ["schema", "b", "list", "state"],
            "properties": {
                "schema": { "type": "string", "description": "name", "const": "n/1" },
                "a": { "type": "integer", "description": "two\nlines" },
                "b": { "anyOf": [{ "$ref": "#/$defs/B" }, { "type": "null" }], "description": "once" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Twice" }, "description": "many" },
                "map": { "type": "object", "additionalProperties": { "$ref": "#/$defs/Twice" }, "description": "named" },
                "own": { "anyOf": [{ "$ref": "#" }, { "type": "null" }], "description": "another one" },
            },
            "oneOf": [
                { "properties": { "state": { "type": "string", "const": "up" }, "data": { "type": "integer" } },
                  "required": ["state", "data"], "description": "well" },
                { "properties": { "state": { "const": "down" }, "data": { "type": "string" } },
                  "required": ["state", "data"] },
            ],
            "$defs": {
                "B": { "type": "object", "required": ["c"], "properties": {
                    "c": { "type": ["number", "null"], "description": "deep" },
                } },
                "Twice": { "type": "object", "properties": { "pair": { "type": "array", "prefixItems": [
                    { "type": "integer" }, { "type": "number" },
                ], "description": "both" } }, "required": ["pair"] },
            },
        });
        let elsewhere = BTreeMap::new();
        let parts = Tables::new("n/1", &root, &elsewhere).parts(&["", "b"]);
        assert_eq!(
            parts[0],
            "| Key | Type | Meaning |\n|---|---|---|\n\
             | `schema` | string | name: `n/1` |\n\
             | `b` | object or null | once |\n\
             | `list` | array of `Twice` | many |\n\
             | `a` | integer, may be absent | two lines |\n\
             | `map` | map of `Twice`, may be absent | named |\n\
             | `own` | `n/1` or null, may be absent | another one |\n\
             | `state` | string | `up` (well); `down` |\n\
             | `data` | varies | as `state` says |\n\n\
             | Key of `Twice` | Type | Meaning |\n|---|---|---|\n\
             | `pair` | [integer, number] | both |\n"
        );
        assert_eq!(parts[1], "| Key | Type | Meaning |\n|---|---|---|\n| `c` | number or null | deep |\n");
        assert_eq!(without_defaults(json!({ "type": "integer", "default": 5 })), json!({ "type": "integer" }));
    }

    #[test]
    #[should_panic(expected = "`b.c` below `Key` has no meaning: its field needs a comment")]
    fn a_key_without_a_comment_is_refused() {
        let root = json!({
            "type": "object", "properties": { "b": { "$ref": "#/$defs/B" } },
            "$defs": { "B": { "type": "object", "description": "a part", "properties": { "c": { "type": "integer" } } } },
        });
        Tables::new("n/1", &root, &BTreeMap::new()).parts(&[""]);
    }

    #[test]
    fn words_that_fill_no_row_are_a_table() {
        let words: Vec<Value> = (0..30).map(|at| json!(format!("a-long-word-{at}"))).collect();
        let root = json!({ "type": "object", "properties": { "state": { "enum": words } }, "required": ["state"] });
        let text = Tables::new("n/1", &root, &BTreeMap::new()).parts(&[""]).concat();
        assert!(text.contains("| `state` | string | one of the words below |\n"), "{text}");
        assert!(text.contains("\n| `state` | Meaning |\n|---|---|\n| `a-long-word-0` |"), "{text}");
    }
}
