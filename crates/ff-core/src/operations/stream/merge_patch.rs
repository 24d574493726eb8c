//! JSON merge patches, as RFC 7396 defines them, with one addition: a null deletes a member, so a
//! text that says [`NULL`] stands for a member that is to be null.

use serde_json::{Map, Value};

/// Written as a leaf of a patch, it sets null instead of deleting.
pub const NULL: &str = "__ff_null__";

/// What becomes of a document under a patch.
pub fn merge_patch(target: Value, patch: Value) -> Value {
    let Value::Object(members) = patch else {
        return leaf(patch);
    };
    let mut merged = match target {
        Value::Object(known) => known,
        _ => Map::new(),
    };
    for (name, value) in members {
        if value.is_null() {
            merged.remove(&name);
        } else {
            let known = merged.remove(&name).unwrap_or_default();
            merged.insert(name, merge_patch(known, value));
        }
    }
    Value::Object(merged)
}

fn leaf(value: Value) -> Value {
    if value.as_str() == Some(NULL) { Value::Null } else { value }
}

/// How many arrays and objects stand inside one another.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the RFC's appendix.
    #[test]
    fn examples_of_the_rfc() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (target, patch, expected) in cases {
            assert_eq!(merge_patch(target.clone(), patch.clone()), expected, "{target} + {patch}");
        }
    }

    #[test]
    fn the_sentinel_sets_null() {
        let merged = merge_patch(json!({"a": 1, "b": 2}), json!({"a": NULL, "b": null}));
        assert_eq!(merged, json!({"a": null}));
        let merged = merge_patch(merged, json!({"a": {"x": NULL, "y": [NULL]}}));
        assert_eq!(merged, json!({"a": {"x": null, "y": [NULL]}}));
    }

    #[test]
    fn depth_counts_brackets() {
        for (value, expected) in
            [(json!(1), 0), (json!({}), 1), (json!({"a": [1]}), 2), (json!([[], {"a": {}}]), 3)]
        {
            assert_eq!(depth(&value), expected, "{value}");
        }
    }
}
