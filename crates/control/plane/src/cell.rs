//! What a database is for: one cell, with its settings.

use tidegate_snapshot_file::CellClass;

use crate::database::RulesDatabase;
use crate::error::PlaneError;

/// The settings of a cell. They are kept in its database, so that all control nodes agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSettings {
    /// Its name.
    pub name: String,
    /// How much it holds.
    pub class: CellClass,
    /// The time between two snapshots, in milliseconds.
    pub beat_millis: u64,
    /// How many people other than the author approve a draft; 0 allows changes without drafts.
    pub approvals: u64,
}

impl Default for CellSettings {
    fn default() -> Self {
        CellSettings::new("main", CellClass::default())
    }
}

impl CellSettings {
    /// A cell with the usual beat of its class, and no approvals.
    pub fn new(name: impl Into<String>, class: CellClass) -> Self {
        let beat_millis = u64::try_from(class.beat().as_millis()).unwrap_or(u64::MAX);
        CellSettings { name: name.into(), class, beat_millis, approvals: 0 }
    }

    /// The most rows, and the most clients.
    pub const fn rows_max(&self) -> u64 {
        self.class.rows_max() as u64
    }

    /// Reads the settings; `None` if the database was never initialized.
    ///
    /// # Errors
    /// When the database cannot be read, or has settings that no version wrote.
    pub async fn load(database: &RulesDatabase) -> Result<Option<Self>, PlaneError> {
        let name = database.setting("cell").await?;
        if name.is_empty() {
            return Ok(None);
        }
        let damaged = |what: &str| PlaneError::Damaged(format!("the setting `{what}` of the cell"));
        let class = database.setting("class").await?.parse();
        let number = |text: String, what: &str| text.parse::<u64>().map_err(|_| damaged(what));
        Ok(Some(CellSettings {
            name,
            class: class.map_err(|_| damaged("class"))?,
            beat_millis: number(database.setting("beat_millis").await?, "beat_millis")?,
            approvals: number(database.setting("approvals").await?, "approvals")?,
        }))
    }

    /// Writes the settings.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn store(&self, database: &RulesDatabase) -> Result<(), PlaneError> {
        database.set_setting("class", self.class.as_str().to_owned()).await?;
        database.set_setting("beat_millis", self.beat_millis.to_string()).await?;
        database.set_setting("approvals", self.approvals.to_string()).await?;
        // Last: a database with a name is initialized.
        database.set_setting("cell", self.name.clone()).await
    }
}
