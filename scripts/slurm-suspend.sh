#!/bin/bash
# SuspendProgram of slurm.conf. Slurm is done with these nodes: the copilot looks at their states and removes what is off.
# shellcheck source-path=SCRIPTDIR source=copilot-hook.sh
source "${0%/*}/copilot-hook.sh"
hook suspend "$@"
