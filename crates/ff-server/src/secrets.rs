//! The secrets that waitpoint tokens are made with: from the configuration, or a file of the host's
//! own that is made when it is first needed.

use std::fs;
use std::path::Path;

use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};

use crate::config::Config;
use crate::private;

const FILE: &str = "waitpoint-secrets";
const BYTES: usize = 32;

/// Reads `id:hex` parts, separated by commas. What is wrong is said without saying the secret.
pub fn parse(text: &str) -> Result<WaitpointSecrets, String> {
    let secrets = text.trim().split(',').map(|part| {
        let (kid, hex) = part.trim().split_once(':').ok_or("write each secret as id:hex")?;
        let bytes = decode(hex).ok_or("a secret is not made of pairs of hex digits")?;
        WaitpointSecret::new(kid, Secret::new(bytes)).map_err(|error| error.to_string())
    });
    let secrets: Result<Vec<_>, String> = secrets.collect();
    WaitpointSecrets::new(secrets?).map_err(|error| error.to_string())
}

/// The configured secrets. A store of one host's own gets one in the data folder; several hosts on
/// one database must be given the same, so nothing is made up for them.
pub fn load(config: &Config, shared: bool) -> Result<WaitpointSecrets, String> {
    if let Some(given) = &config.waitpoint_secrets {
        return parse(given);
    }
    if shared {
        return Ok(WaitpointSecrets::default());
    }
    let path = config.data.join(FILE);
    if !path.exists() {
        create(&path)?;
    }
    private::warn_of_access(&path);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Whether loading would find them, and create nothing.
pub fn are_there(config: &Config) -> bool {
    config.waitpoint_secrets.is_some() || config.data.join(FILE).exists()
}

fn create(path: &Path) -> Result<(), String> {
    let mut bytes = [0u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        private::create_folder(folder).map_err(failed)?;
    }
    private::write_file(path, &format!("k1:{hex}")).map_err(failed)
}

fn decode(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_and_not_told() {
        let good = "ab".repeat(32);
        assert_eq!(parse(&format!("k2:{good}, k1:{good}")).unwrap().iter().count(), 2);
        for bad in ["", "k1", "k1:xy", "k1:abc", "k1:abcd", &format!("k.1:{good}")] {
            let error = parse(bad).unwrap_err();
            assert!(!error.contains("abc"), "{error}");
        }
    }

    #[test]
    fn a_host_keeps_what_it_made() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        assert_eq!(load(&config, false).unwrap().iter().count(), 1);
        let first = fs::read(config.data.join(FILE)).unwrap();
        load(&config, false).unwrap();
        assert_eq!(fs::read(config.data.join(FILE)).unwrap(), first);
        assert!(load(&config, true).unwrap().is_empty());
    }
}
