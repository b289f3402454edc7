//! From a logged request to descriptors.

use super::logged_request::LoggedRequest;
use super::pending::PendingRequests;

/// The most descriptors that `--describe` can give.
const RECIPES_MAX: usize = 16;

/// Turns logged requests into descriptors, as a door would have.
pub trait RequestDescriber {
    /// Adds the descriptors of a request.
    fn describe(&mut self, request: &LoggedRequest<'_>, out: &mut DescriptorWriter<'_>);

    /// Whether it reads variables beyond address, user, method, target, host and status.
    fn needs_fields(&self) -> bool {
        true
    }

    /// The domain of the requests.
    fn domain(&self) -> &str;

    /// What it needs and the log never had, with how often, for the report.
    fn missing(&self) -> Vec<(String, u64)>;
}

/// Where a describer puts descriptors.
#[derive(Debug)]
pub struct DescriptorWriter<'b> {
    pub(crate) pending: &'b mut PendingRequests,
}

impl DescriptorWriter<'_> {
    /// Adds an entry to the present descriptor.
    pub fn entry(&mut self, key: &str, value: &str) {
        self.pending.push_entry(key, value);
    }

    /// Ends the present descriptor, with its own cost if it has one.
    pub fn end(&mut self, cost: Option<u64>) {
        self.pending.end_descriptor(cost, false);
    }

    /// Drops the entries since the last descriptor.
    pub fn drop_entries(&mut self) {
        self.pending.drop_entries();
    }
}

/// Descriptors by recipes such as `user=$remote_user,path=$uri`.
#[derive(Clone, Debug)]
pub struct DescriptorRecipes {
    domain: String,
    recipes: Vec<Vec<RecipeEntry>>,
    missing: Vec<(String, u64)>,
}

#[derive(Clone, Debug)]
struct RecipeEntry {
    key: String,
    value: RecipeValue,
}

#[derive(Clone, Debug)]
enum RecipeValue {
    Text(String),
    /// A variable by its name, and its index among those that were missing.
    Variable(String, usize),
}

/// Why a recipe cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// An entry without an equals sign.
    #[error("`{0}` is not like `key=$variable` or `key=text`")]
    NoValue(String),
    /// A variable whose name is empty or has other characters.
    #[error("`{0}` is not the name of a variable, such as `$remote_addr` or `$http_x_user`")]
    NoVariable(String),
    /// Too many.
    #[error("there are more than {RECIPES_MAX} descriptors")]
    TooMany,
}

impl DescriptorRecipes {
    /// Recipes for the requests of a domain, one text for each descriptor.
    ///
    /// # Errors
    /// When a text is no recipe.
    pub fn new(domain: &str, texts: &[String]) -> Result<Self, RecipeError> {
        if texts.len() > RECIPES_MAX {
            return Err(RecipeError::TooMany);
        }
        let mut missing = Vec::new();
        let mut recipes = Vec::new();
        for text in texts {
            let entries: Result<Vec<_>, _> =
                text.split(',').map(|entry| parse_entry(entry, &mut missing)).collect();
            recipes.push(entries?);
        }
        Ok(DescriptorRecipes { domain: domain.to_owned(), recipes, missing })
    }

    fn variables(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(|(name, _)| &**name)
    }
}

fn parse_entry(text: &str, missing: &mut Vec<(String, u64)>) -> Result<RecipeEntry, RecipeError> {
    let parts = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = parts.ok_or_else(|| RecipeError::NoValue(text.to_owned()))?;
    let Some(name) = value.strip_prefix('$') else {
        let value = RecipeValue::Text(value.to_owned());
        return Ok(RecipeEntry { key: key.to_owned(), value });
    };
    let valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || !name.chars().all(valid) {
        return Err(RecipeError::NoVariable(value.to_owned()));
    }
    let index = missing.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        missing.push((name.to_owned(), 0));
        missing.len() - 1
    });
    let value = RecipeValue::Variable(name.to_owned(), index);
    Ok(RecipeEntry { key: key.to_owned(), value })
}

impl RequestDescriber for DescriptorRecipes {
    fn describe(&mut self, request: &LoggedRequest<'_>, out: &mut DescriptorWriter<'_>) {
        let DescriptorRecipes { recipes, missing, .. } = self;
        'recipes: for recipe in recipes {
            for RecipeEntry { key, value } in recipe {
                match value {
                    RecipeValue::Text(text) => out.entry(key, text),
                    RecipeValue::Variable(name, index) => match request.variable(name) {
                        Some(value) => out.entry(key, value),
                        // As at the gateway: without the value there is no descriptor.
                        None => {
                            if let Some((_, count)) = missing.get_mut(*index) {
                                *count += 1;
                            }
                            out.drop_entries();
                            continue 'recipes;
                        }
                    },
                }
            }
            out.end(None);
        }
    }

    fn needs_fields(&self) -> bool {
        let known = ["remote_addr", "remote_user", "request_method", "request_uri", "uri", "host"];
        self.variables().any(|name| !known.contains(&name) && !name.starts_with("arg_"))
    }

    fn domain(&self) -> &str {
        &self.domain
    }

    fn missing(&self) -> Vec<(String, u64)> {
        let missing = self.missing.iter().filter(|(_, count)| *count > 0);
        missing.map(|(name, count)| (format!("${name}"), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_that_cannot_be_read_are_refused() {
        let error = |text: &str| DescriptorRecipes::new("d", &[text.to_owned()]).unwrap_err();
        assert_eq!(error("user"), RecipeError::NoValue("user".into()));
        assert_eq!(error("user=$a-b"), RecipeError::NoVariable("$a-b".into()));
        assert_eq!(error("a=1,b="), RecipeError::NoValue("b=".into()));
    }

    #[test]
    fn a_request_without_the_value_has_no_such_descriptor_and_is_counted() {
        let texts = ["user=$remote_user".to_owned(), "kind=all,address=$remote_addr".to_owned()];
        let mut recipes = DescriptorRecipes::new("d", &texts).unwrap();
        let mut pending = PendingRequests::default();
        let client = Some("192.0.2.1".into());
        let request = LoggedRequest { client, ..LoggedRequest::default() };
        recipes.describe(&request, &mut DescriptorWriter { pending: &mut pending });
        pending.end_request(Default::default());
        let shown = pending.requests().next().map(|request| format!("{:?}", request.entries()));
        let expected = "[(\"kind\", \"all\"), (\"address\", \"192.0.2.1\")]";
        assert_eq!(shown.as_deref(), Some(expected));
        assert_eq!(recipes.missing(), [("$remote_user".to_owned(), 1)]);
        assert!(!recipes.needs_fields());
    }
}
