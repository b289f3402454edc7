//! The difference between two configurations.

use super::fields::Config;

/// The paths of the fields that have another value in `other`. Secrets are compared too, and never shown.
pub fn changed(config: &Config, other: &Config) -> Vec<String> {
    let (mut config, mut other) = (config.clone(), other.clone());
    let pairs = config.fields().zip(other.fields());
    let changed = pairs.filter(|(before, after)| !before.value.is_same(&*after.value));
    changed.map(|(before, _)| before.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_document::{Bounds, Setting};

    /// Writes a value as if it stood in the file.
    fn set(setting: &mut dyn Setting, text: &str) {
        setting.set_text(text, &Bounds::NONE).expect("of its kind");
    }

    #[test]
    fn fields_that_differ_are_named_and_others_are_not() {
        let config = Config::default();
        assert_eq!(changed(&config, &config.clone()), Vec::<String>::new());
        let mut other = config.clone();
        other.gateway.connections_max = 7;
        other.overload.capacity = Some(5);
        assert_eq!(changed(&config, &other), ["gateway.connections_max", "overload.capacity"]);
    }

    #[test]
    fn a_secret_that_differs_is_named_though_it_looks_the_same() {
        let mut config = Config::default();
        set(&mut config.debug.token, "correct horse battery");
        set(&mut config.store.redis.password, "one");
        set(&mut config.store.redis.url, "redis://:one@localhost");
        let mut other = config.clone();
        assert_eq!(changed(&config, &other), Vec::<String>::new());
        set(&mut other.debug.token, "correct horse staple");
        set(&mut other.store.redis.password, "two");
        set(&mut other.store.redis.url, "redis://:two@localhost");
        let named = changed(&config, &other);
        assert_eq!(named, ["debug.token", "store.redis.url", "store.redis.password"]);
    }
}
