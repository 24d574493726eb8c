//! `--name value` pairs.

use std::collections::HashMap;
use std::str::FromStr;

use anyhow::Context as _;

use crate::USAGE;

pub struct Options(HashMap<String, String>);

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = HashMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").with_context(|| format!("{word:?}?\n{USAGE}"))?;
            let value = words.next().with_context(|| format!("--{name} needs a value"))?;
            options.insert(name.to_owned(), value);
        }
        Ok(Self(options))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn required<T: FromStr>(&self, name: &str) -> anyhow::Result<T> {
        let value = self.0.get(name).with_context(|| format!("--{name} is missing\n{USAGE}"))?;
        let parsed = value.parse().ok();
        parsed.with_context(|| format!("--{name} cannot be {value:?}"))
    }

    pub fn or<T: FromStr>(&self, name: &str, default: T) -> anyhow::Result<T> {
        if self.has(name) { self.required(name) } else { Ok(default) }
    }
}
