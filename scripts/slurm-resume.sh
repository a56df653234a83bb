#!/bin/bash
# ResumeProgram of slurm.conf. Slurm wants these nodes: the copilot makes Kubernetes run them.
# shellcheck source-path=SCRIPTDIR source=copilot-hook.sh
source "${0%/*}/copilot-hook.sh"
hook resume "$@"
