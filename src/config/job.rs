//! The job that this process is a rank of, as named by `NEXAR_JOB_ID` or by a launcher.
//!
//! Invariant: a launcher's name is the same on all ranks that it started. A later run may have the
//! same name. If one launcher was started by another, the innermost one's name is used, because
//! the outer one may have started only some of the ranks.

/// Variables of launchers, the innermost first.
const NAMES: [&str; 4] =
    ["TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: String,
    /// The environment variable that named the job.
    pub source: &'static str,
}

/// The job of the innermost launcher. `None` if no launcher named one.
pub(super) fn from_launcher(variables: &[(String, String)]) -> Option<Job> {
    let value = |name: &str| {
        let found = variables.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str());
        // torchrun's default is "none".
        found.filter(|value| !value.is_empty() && *value != "none")
    };
    let named = |source| value(source).map(|id| Job { id: id.to_owned(), source });
    NAMES.into_iter().find_map(named).or_else(|| {
        let job = named("SLURM_HET_JOB_ID").or_else(|| named("SLURM_JOB_ID"))?;
        // MPICH's mpiexec starts remote ranks with srun, which sets a step, and local ranks
        // without it.
        let step = value("SLURM_STEP_ID").filter(|_| value("PMI_RANK").is_none());
        let id = step.map_or(job.id.clone(), |step| format!("{}.{step}", job.id));
        Some(Job { id, ..job })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_launcher_names_the_job() {
        for (variables, expected) in [
            (&[][..], None),
            (&[("SLURM_JOB_ID", "17")], Some(("17", "SLURM_JOB_ID"))),
            (&[("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "2")], Some(("17.2", "SLURM_JOB_ID"))),
            (
                &[("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "2"), ("PMI_RANK", "0")],
                Some(("17", "SLURM_JOB_ID")),
            ),
            (
                &[("SLURM_JOB_ID", "18"), ("SLURM_HET_JOB_ID", "17")],
                Some(("17", "SLURM_HET_JOB_ID")),
            ),
            (
                &[("SLURM_JOB_ID", "17"), ("PMIX_NAMESPACE", "prterun-a-5@1")],
                Some(("prterun-a-5@1", "PMIX_NAMESPACE")),
            ),
            (
                &[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "17")],
                Some(("17", "SLURM_JOB_ID")),
            ),
        ] {
            let variables: Vec<_> = variables
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect();
            let expected = expected.map(|(id, source)| Job { id: id.to_owned(), source });
            assert_eq!(from_launcher(&variables), expected, "{variables:?}");
        }
    }
}
