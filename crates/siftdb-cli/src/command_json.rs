#![doc = include_str!("../docs/json.md")]
