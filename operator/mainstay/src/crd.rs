//! `mainstay crd`: the custom resource definitions, for `make gen` and for `kubectl apply --server-side -f -`.

use std::path::Path;

use mainstay_api::{custom_resource_definitions, file_name, render};

/// Why the definitions could not be given out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CrdError {
    /// A definition has no form as YAML.
    #[error("failed to write a definition as YAML: {0}")]
    Yaml(#[from] serde_norway::Error),
    /// A file could not be written.
    #[error("failed to write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Every definition as a document of its own.
pub(crate) fn yaml() -> Result<String, CrdError> {
    let documents = custom_resource_definitions()
        .iter()
        .map(render)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// Writes one file for each definition, and returns what was written, one path a line.
pub(crate) fn write(folder: &Path) -> Result<String, CrdError> {
    let mut written = String::new();
    for definition in custom_resource_definitions() {
        let path = folder.join(file_name(&definition));
        let shown = path.display().to_string();
        std::fs::write(&path, render(&definition)?).map_err(|source| CrdError::Write {
            path: shown.clone(),
            source,
        })?;
        written.push_str(&shown);
        written.push('\n');
    }
    Ok(written)
}
