//! Clients of a server.

use std::env::{VarError, var};
use std::sync::Arc;

use ff_core::types::Namespace;

use super::Client;
use crate::error::Error;
use crate::transport::{DEFAULT_URL, Http, HttpOptions};

impl Client {
    /// A client of a server, for example `http://127.0.0.1:7411`.
    pub fn http(options: HttpOptions) -> Result<Self, Error> {
        let namespace = options.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| Namespace::new("default"));
        Ok(Self::with_transport(Arc::new(Http::new(options)?), namespace))
    }

    /// A client of the server that `FF_URL` names, with the token `FF_TOKEN`, in the namespace
    /// `FF_NAMESPACE`. Without a URL it is the one that `flowfabric dev` starts.
    pub fn from_env() -> Result<Self, Error> {
        let mut options = HttpOptions::new(DEFAULT_URL);
        if let Some(url) = variable("FF_URL")? {
            options.url = url;
        }
        options.token = variable("FF_TOKEN")?;
        options.namespace = variable("FF_NAMESPACE")?.map(Namespace::new);
        Self::http(options)
    }
}

fn variable(name: &str) -> Result<Option<String>, Error> {
    match var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::config(format!("{name} is not UTF-8"))),
    }
}
