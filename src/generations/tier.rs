//! Tiers in JSON: in the service file, manifests, calls and answers alike.

use std::str::FromStr;

use dunnage_runtime::generation::{Limit, MAX_WEIGHT, Tier};
use serde_json::Value;

use crate::json::{Fields, Wrong};

/// Reads the tier that a field is, if it is there. A limit that it does not name is the kernel's own: none.
pub(crate) fn read(fields: &mut Fields<'_>, name: &str) -> Result<Option<Tier>, Wrong> {
    fields.nested(name, of)
}

/// Reads a tier from the fields that are its limits.
pub(crate) fn of(fields: &mut Fields<'_>) -> Result<Tier, Wrong> {
    let mut tier = Tier::UNLIMITED;
    limit(fields, "memory_max", &mut tier.memory_max)?;
    limit(fields, "memory_high", &mut tier.memory_high)?;
    limit(fields, "cpu_max", &mut tier.cpu_max)?;
    limit(fields, "pids_max", &mut tier.pids_max)?;
    let mut weight = Limit::Value(tier.cpu_weight);
    limit(fields, "cpu_weight", &mut weight)?;
    match weight {
        Limit::Value(weight @ 1..=MAX_WEIGHT) => Ok(Tier { cpu_weight: weight, ..tier }),
        _ => Err(Wrong::new("cpu_weight", format!("is not within 1 and {MAX_WEIGHT}"))),
    }
}

/// The limits of a tier by their names, as the kernel writes them.
pub(crate) fn limits(tier: &Tier) -> [(&'static str, String); 5] {
    [
        ("memory_max", tier.memory_max.to_string()),
        ("memory_high", tier.memory_high.to_string()),
        ("cpu_max", tier.cpu_max.to_string()),
        ("cpu_weight", tier.cpu_weight.to_string()),
        ("pids_max", tier.pids_max.to_string()),
    ]
}

/// The object that [`of`] reads.
pub(crate) fn encode(tier: &Tier) -> Value {
    limits(tier).into_iter().collect()
}

fn limit<T: FromStr>(fields: &mut Fields<'_>, name: &str, limit: &mut T) -> Result<(), Wrong> {
    if let Some(text) = fields.optional::<String>(name)? {
        *limit =
            text.parse().map_err(|_| Wrong::new(name, format!("is no limit as the kernel writes it: {text:?}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tier(value: &Value) -> Result<Option<Tier>, String> {
        let json = json!({"tier": value}).to_string();
        read(&mut Fields::parse(json.as_bytes()).unwrap(), "tier").map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn g9_a_tier_is_written_and_read_as_the_kernel_writes_limits() {
        let given = json!({
            "memory_max": "max", "memory_high": "1073741824", "cpu_max": "50000 100000", "cpu_weight": "7",
            "pids_max": "9",
        });
        let read = tier(&given).unwrap().unwrap();
        assert_eq!(encode(&read), given);
        assert_eq!(tier(&json!({})), Ok(Some(Tier::UNLIMITED)));
        assert_eq!(tier(&json!(null)), Ok(None));
    }

    #[test]
    fn g9_what_is_no_limit_is_named() {
        for (wrong, text) in [
            (json!({"memory_max": 5}), "\"tier.memory_max\" is wrong: invalid type: integer `5`, expected a string"),
            (json!({"pids_max": "many"}), "\"tier.pids_max\" is no limit as the kernel writes it: \"many\""),
            (json!({"cpu_weight": "10001"}), "\"tier.cpu_weight\" is not within 1 and 10000"),
            (json!({"io_max": "1"}), "\"tier.io_max\" is not known"),
        ] {
            assert_eq!(tier(&wrong), Err(text.to_owned()));
        }
    }
}
