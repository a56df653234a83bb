#!/bin/bash
# ResumeFailProgram of slurm.conf. These nodes did not come up within ResumeTimeout: the copilot looks at them at once.
# shellcheck source-path=SCRIPTDIR source=copilot-hook.sh
source "${0%/*}/copilot-hook.sh"
hook resume-fail "$@"
