//! The schema of what `status`, `members` and `who` print for programs.

use jsonschema::Validator;
use serde_json::{Map, Value};

const SCHEMA: &str = include_str!("../../../packaging/status.schema.json");

/// The schema as it is published: programs are to accept what later versions add.
pub(crate) fn published() -> Value {
    serde_json::from_str(SCHEMA).expect("JSON")
}

/// The same for this very version: with fields and events that are not listed refused. So one that is
/// added to the program and not to the schema fails a test.
pub(crate) fn of_this_version() -> Value {
    let mut schema = published();
    close(&mut schema);
    schema["$defs"]["event_of_later"] = Value::Bool(false);
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("properties").is_some_and(Value::is_object) {
                object.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// What judges documents of one kind: `status`, `members`, `who` or `line`.
pub(crate) fn validator(schema: &Value, kind: &str) -> Validator {
    assert!(schema["$defs"][kind].is_object(), "no {kind} in the schema");
    let mut root = Map::new();
    for key in ["$schema", "$defs"] {
        root.insert(key.to_owned(), schema[key].clone());
    }
    root.insert("$ref".to_owned(), format!("#/$defs/{kind}").into());
    jsonschema::validator_for(&Value::Object(root)).expect("a schema")
}

/// Checks that `document` is as the schema of this version says.
#[track_caller]
pub(crate) fn assert_valid(kind: &str, document: &Value) {
    let validator = validator(&of_this_version(), kind);
    let errors: Vec<_> = validator.iter_errors(document).collect();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:#?} in {document:#}");
}
