//! A check of JSON against a JSON schema, as far as the schema of SARIF needs it. In: a schema and a value. Out: what does not agree. Never:
//! a keyword that is passed over. Next: `output.rs`.

use serde_json::Value;

/// Every place at which a value is not as the schema says.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    check(schema, schema, value, "$", &mut out);
    out
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else { return };
    for (keyword, wanted) in keywords {
        let ok = match keyword.as_str() {
            "$ref" => {
                let pointer = wanted.as_str().and_then(|p| p.strip_prefix('#')).expect("references are local");
                check(root, root.pointer(pointer).expect("the definition is there"), value, at, out);
                true
            }
            "type" => is_type(wanted, value),
            "enum" => wanted.as_array().expect("an array").contains(value),
            "required" => value.as_object().is_none_or(|object| {
                wanted
                    .as_array()
                    .expect("an array")
                    .iter()
                    .all(|key| object.contains_key(key.as_str().expect("a name")))
            }),
            "properties" => {
                for (key, inner) in wanted.as_object().expect("an object") {
                    if let Some(found) = value.get(key) {
                        check(root, inner, found, &format!("{at}.{key}"), out);
                    }
                }
                true
            }
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = |key: &String| schema.get("properties").is_some_and(|p| p.get(key).is_some());
                let more: Vec<&String> = object.keys().filter(|key| !known(key)).collect();
                if wanted.is_object() {
                    more.iter().for_each(|key| check(root, wanted, &object[*key], &format!("{at}.{key}"), out));
                }
                *wanted != Value::Bool(false) || more.is_empty()
            }),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, wanted, item, &format!("{at}[{index}]"), out);
                }
                true
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap_or(0)),
            "uniqueItems" => value
                .as_array()
                .is_none_or(|items| items.iter().enumerate().all(|(i, item)| !items[..i].contains(item))),
            "minimum" => value.as_i64().is_none_or(|n| n >= wanted.as_i64().unwrap_or(i64::MIN)),
            "maximum" => value.as_i64().is_none_or(|n| n <= wanted.as_i64().unwrap_or(i64::MAX)),
            "anyOf" | "oneOf" => wanted.as_array().expect("an array").iter().any(|inner| {
                let mut found = Vec::new();
                check(root, inner, value, at, &mut found);
                found.is_empty()
            }),
            "pattern" | "format" => value.is_string(),
            "$schema" | "id" | "title" | "description" | "default" | "definitions" => true,
            other => panic!("the schema uses `{other}`"),
        };
        if !ok {
            out.push(format!("{at}: {keyword} {wanted}"));
        }
    }
}

fn is_type(wanted: &Value, value: &Value) -> bool {
    match wanted.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => panic!("the schema has the type `{other}`"),
        None => wanted.as_array().expect("several types").iter().any(|one| is_type(one, value)),
    }
}
