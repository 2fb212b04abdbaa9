//! Limits on the command line, and in words.

use serde_json::{Map, Value, json};

use crate::output::{clean, size};

/// As the interface calls them.
pub(crate) const KEYS: [&str; 5] = ["memory_max", "memory_high", "cpu_max", "cpu_weight", "pids_max"];

/// What `--tier` and TIER are, for help.
pub(crate) const HELP: &str = "memory_max=512M,memory_high=N,cpu_max=QUOTA PERIOD,cpu_weight=N,pids_max=N, each as the \
                               kernel takes it; what is left out is no limit; none: no limits";

/// Reads `memory_max=512M,pids_max=100`, or `none`.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut tier = Map::new();
    if text == "none" {
        return Ok(Value::Object(tier));
    }
    for limit in text.split(',') {
        let Some((key, value)) = limit.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            return Err(format!("{limit:?} is no limit: write {HELP}"));
        };
        if !KEYS.contains(&key) {
            return Err(format!("there is no limit {key:?}, only {}", KEYS.join(", ")));
        }
        let value = if key.starts_with("memory") { bytes(value)? } else { value.to_owned() };
        if tier.insert(key.to_owned(), json!(value)).is_some() {
            return Err(format!("{key} is there twice"));
        }
    }
    Ok(Value::Object(tier))
}

/// A size with the units that the kernel takes as well, in bytes. What is none is left to the monitor to refuse.
fn bytes(text: &str) -> Result<String, String> {
    let shift = match text.bytes().next_back().map(|byte| byte.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => return Ok(text.to_owned()),
    };
    let number: Option<u64> = text[..text.len() - 1].parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.map(|bytes| bytes.to_string()).ok_or_else(|| format!("{text} is no size: write 512M, or a number of bytes"))
}

/// The limits of a tier that there are.
pub(crate) fn words(tier: &Value) -> String {
    let limit = |key: &str| tier[key].as_str().filter(|limit| !limit.starts_with("max"));
    let memory = |limit: &str| limit.parse().map_or_else(|_| clean(limit), size);
    let all = [
        limit("memory_max").map(|limit| format!("memory {}", memory(limit))),
        limit("memory_high").map(|limit| format!("high {}", memory(limit))),
        limit("cpu_max").map(|limit| format!("cpu {}", cpus(limit))),
        // 100 is what every cgroup has.
        limit("cpu_weight").filter(|&limit| limit != "100").map(|limit| format!("weight {}", clean(limit))),
        limit("pids_max").map(|limit| format!("pids {}", clean(limit))),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "no limits".to_owned() } else { all.join(", ") }
}

/// `50000 100000` as the half of a processor that it is.
fn cpus(limit: &str) -> String {
    let mut numbers = limit.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(quota)), Some(Ok(period))) if period > 0 => {
            let hundredths = u128::from(quota) * 100 / u128::from(period);
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
        _ => clean(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_units() {
        let tier = parse("memory_max=512M, memory_high=max,cpu_max=50000 100000,pids_max=7").unwrap();
        let wanted = json!({
            "memory_max": "536870912", "memory_high": "max", "cpu_max": "50000 100000", "pids_max": "7",
        });
        assert_eq!(tier, wanted);
        assert_eq!(parse("none"), Ok(json!({})));
        for wrong in ["", "memory_max", "io_max=1", "pids_max=1,pids_max=2", "memory_max=M", "memory_max=99999999999T"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_told_as_people_say_them() {
        let tier = json!({
            "memory_max": "536870912", "memory_high": "max", "cpu_max": "50000 100000", "cpu_weight": null,
            "pids_max": "7"
        });
        assert_eq!(words(&tier), "memory 512.0 MiB, cpu 0.50, pids 7");
        assert_eq!(words(&json!({"cpu_max": "max 100000", "cpu_weight": "100"})), "no limits");
        assert_eq!(words(&json!({"cpu_max": "later", "memory_max": "\u{1b}1"})), "memory  1, cpu later");
    }
}
