//! The configuration that holds now.

use std::sync::{Arc, Mutex, PoisonError};

use settings::Config;

/// Shared by all who need it. Another one takes its place as a whole; whoever took the one before goes on with that.
#[derive(Clone)]
pub(super) struct CurrentConfig(Arc<Mutex<Arc<Config>>>);

impl CurrentConfig {
    pub fn new(config: Config) -> CurrentConfig {
        CurrentConfig(Arc::new(Mutex::new(Arc::new(config))))
    }

    pub fn get(&self) -> Arc<Config> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, config: Config) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }
}
