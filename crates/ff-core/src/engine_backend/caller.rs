//! The same engine for callers that see less of it, or that events are to name.

use std::sync::Arc;

use super::EngineBackend;
use crate::contracts::Stamp;
use crate::engine::Engine;
use crate::types::Namespace;

/// A backend as one namespace sees it.
pub struct Namespaced<B: ?Sized> {
    backend: Arc<B>,
    namespace: Namespace,
}

impl<B: EngineBackend + ?Sized> Namespaced<B> {
    pub fn new(backend: Arc<B>, namespace: Namespace) -> Self {
        Self { backend, namespace }
    }
}

impl<B: EngineBackend + ?Sized> EngineBackend for Namespaced<B> {
    fn engine(&self) -> &Engine {
        self.backend.engine()
    }

    fn scope(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    fn stamp(&self) -> Option<&Arc<Stamp>> {
        self.backend.stamp()
    }
}

/// The same engine for one caller, which every event of its operations names.
pub struct Acting<B: ?Sized> {
    backend: Arc<B>,
    stamp: Arc<Stamp>,
}

impl<B: EngineBackend + ?Sized> Acting<B> {
    pub fn new(backend: Arc<B>, stamp: Stamp) -> Self {
        Self { backend, stamp: Arc::new(stamp) }
    }
}

impl<B: EngineBackend + ?Sized> EngineBackend for Acting<B> {
    fn engine(&self) -> &Engine {
        self.backend.engine()
    }

    fn scope(&self) -> Option<&Namespace> {
        self.backend.scope()
    }

    fn stamp(&self) -> Option<&Arc<Stamp>> {
        Some(&self.stamp)
    }
}
