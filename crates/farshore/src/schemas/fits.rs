//! Whether a document is as its JSON Schema says, as far as the schemas of docs/book/schemas go: types, keys, words, lists, lower bounds.
//!
//! In one thing it is stricter than a reader may be: a key that the schema does not name is a misfit, because keys are described before
//! they are printed. The whole-process tests include this file by its path.

use serde_json::{Map, Value};

/// What does not fit, each with its place; empty: everything fits.
pub fn misfits(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Fitting { root: schema }.check(schema, document, "", true, &mut found);
    found
}

const OTHER_WORD: &str = ", which is none of its words";

struct Fitting<'a> {
    root: &'a Value,
}

impl<'a> Fitting<'a> {
    /// `is_strict`: keys without a description are misfits.
    fn check(&self, schema: &'a Value, value: &Value, at: &str, is_strict: bool, found: &mut Vec<String>) {
        let schema = self.resolved(schema);
        let own = schema["properties"].as_object();
        let branch = match branches(schema) {
            [] => None,
            branches => {
                let (branch, misfits) = self.nearest(branches, value, at, is_strict && own.is_none());
                found.extend(misfits);
                Some(branch)
            }
        };
        if !is_kind(schema, value) {
            found.push(format!("{at} is {value}, and its type is {}", schema["type"]));
            return;
        }
        let is_word = |words: &Vec<Value>| words.contains(value);
        if schema.get("const").is_some_and(|word| word != value) || !schema["enum"].as_array().is_none_or(is_word) {
            found.push(format!("{at} is {value}{OTHER_WORD}"));
        }
        match value {
            Value::Object(object) => {
                let others = branch.and_then(|branch| branch["properties"].as_object());
                // Without keys of its own the branch has looked at them.
                let is_strict = is_strict && (own.is_some() || branch.is_none());
                self.check_keys(schema, own, others, object, at, is_strict, found);
            }
            Value::Array(list) => self.check_list(schema, list, at, found),
            Value::Number(number) => {
                let least = schema["minimum"].as_f64().unwrap_or(f64::NEG_INFINITY);
                if number.as_f64().is_some_and(|number| number < least) {
                    found.push(format!("{at} is {number}, below {least}"));
                }
            }
            _ => {}
        }
    }

    /// The branch that the value comes nearest to, and what of it does not fit.
    fn nearest(&self, branches: &'a [Value], value: &Value, at: &str, is_strict: bool) -> (&'a Value, Vec<String>) {
        let tried = branches.iter().map(|branch| {
            let mut misfits = Vec::new();
            self.check(branch, value, at, is_strict, &mut misfits);
            let branch = self.resolved(branch);
            // Another word, or `null`, is one misfit away from everything, and means something else.
            let other_words = misfits.iter().filter(|misfit| misfit.ends_with(OTHER_WORD)).count();
            let distance = misfits.len() + 100 * other_words + if is_kind(branch, value) { 0 } else { 10_000 };
            (distance, branch, misfits)
        });
        let (_, branch, misfits) = tried.min_by_key(|(distance, ..)| *distance).expect("there is a branch");
        (branch, misfits)
    }

    #[expect(clippy::too_many_arguments, reason = "one place of a document, and what is known of it")]
    fn check_keys(
        &self,
        schema: &'a Value,
        own: Option<&'a Map<String, Value>>,
        others: Option<&'a Map<String, Value>>,
        object: &Map<String, Value>,
        at: &str,
        is_strict: bool,
        found: &mut Vec<String>,
    ) {
        for (key, value) in object {
            let place = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            if let Some(schema) = own.and_then(|own| own.get(key)) {
                self.check(schema, value, &place, true, found);
            } else if let Some(more) = schema.get("additionalProperties").filter(|more| **more != Value::Bool(false)) {
                self.check(more, value, &place, true, found);
            } else if is_strict && !others.is_some_and(|others| others.contains_key(key)) {
                found.push(format!("{place} is not described"));
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for key in required.filter(|key| !object.contains_key(*key)) {
            found.push(format!("{at} has no {key}"));
        }
    }

    fn check_list(&self, schema: &'a Value, list: &[Value], at: &str, found: &mut Vec<String>) {
        let firsts = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
        for (number, item) in list.iter().enumerate() {
            if let Some(schema) = firsts.get(number).or(schema.get("items")) {
                self.check(schema, item, &format!("{at}[{number}]"), true, found);
            }
        }
        if list.len() < firsts.len() {
            found.push(format!("{at} has {} items, not {}", list.len(), firsts.len()));
        }
    }

    /// Where a reference leads.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            None => schema,
            Some(reference) => {
                let target = self.root.pointer(reference.trim_start_matches('#'));
                self.resolved(target.expect("a schema has what it refers to"))
            }
        }
    }
}

/// Forms of which a value has one.
fn branches(schema: &Value) -> &[Value] {
    ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array()).map_or(&[][..], Vec::as_slice)
}

/// Whether it is a number, a text and so on, as wanted.
fn is_kind(schema: &Value, value: &Value) -> bool {
    let is_of = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match &schema["type"] {
        Value::String(kind) => is_of(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is_of),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::misfits;

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let schema = json!({
            "type": "object", "required": ["a", "state"],
            "properties": {
                "a": { "type": ["integer", "null"], "minimum": 0 },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
                "item": { "anyOf": [{ "$ref": "#/$defs/Item" }, { "type": "null" }] },
                "map": { "type": "object", "additionalProperties": { "type": "string" } },
                "pair": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "integer" }] },
                "word": { "anyOf": [{ "const": "x" }, { "type": "string" }] },
            },
            "oneOf": [
                { "type": "object", "properties": { "state": { "const": "up" } }, "required": ["state"] },
                { "type": "object", "properties": { "state": { "const": "down" }, "why": { "type": "string" } },
                  "required": ["state", "why"] },
            ],
            "$defs": { "Item": { "type": "object", "properties": { "n": { "type": "number" } }, "required": ["n"] } },
        });
        let fits = |document: serde_json::Value| misfits(&schema, &document);
        assert_eq!(fits(json!({ "a": null, "state": "up", "list": [{ "n": 1 }], "item": null, "word": "y" })), [""; 0]);
        let other = json!({ "a": 1, "state": "down", "why": "w", "map": { "k": "v" }, "pair": [0.5, 1] });
        assert_eq!(fits(other), [""; 0]);
        for (document, misfit) in [
            (json!({ "state": "up" }), " has no a"),
            (json!({ "a": -1, "state": "up" }), "a is -1, below 0"),
            (json!({ "a": 0.5, "state": "up" }), "a is 0.5, and its type is [\"integer\",\"null\"]"),
            (json!({ "a": 1, "state": "up", "b": 1 }), "b is not described"),
            (json!({ "a": 1, "state": "down" }), " has no why"),
            (json!({ "a": 1, "state": "up", "list": [{ "n": 1 }, {}] }), "list[1] has no n"),
            (json!({ "a": 1, "state": "up", "item": { "n": 1, "m": 2 } }), "item.m is not described"),
            (json!({ "a": 1, "state": "up", "map": { "k": 1 } }), "map.k is 1, and its type is \"string\""),
            (json!({ "a": 1, "state": "up", "pair": [1] }), "pair has 1 items, not 2"),
        ] {
            assert_eq!(fits(document.clone()), [misfit], "{document}");
        }
    }
}
